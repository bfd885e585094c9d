"""What the engine is told, and where it keeps things. Pure."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Sandboxes of the self-test: of the same length as those of leases, so that neither can be a prefix of the other, and of no lease.
PROBE_NAME = re.compile(r"t-[0-9a-f]{24}-[0-9]{4}")
ANY_NAME = re.compile(r"[mt]-[0-9a-f]{24}-[0-9]{4}")
VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_INSTANCE = re.compile(r"[0-9a-f]{12}")

#: The image that every host has: its own /usr, read-only.
HOST_IMAGE = "host"
#: Where the guest's directory is mounted inside.
GUEST_DIRECTORY = "/.guest"
GUEST_PROGRAM = "/.guest/guest"
#: Who the tenant's commands are, when the engine runs as root.
TENANT_ID = 1000


@dataclass(frozen=True)
class OciConfig:
    """How one deployment runs sandboxes on this host.

    The mode follows from who runs the control plane: as root sandboxes have cgroup limits and a disk of bounded size (where there is
    mkfs.ext4); as an ordinary user (rootless) they have not. ``Runtime.unenforced`` tells.
    """

    instance: str  #: the deployment's id, 12 hex digits; nothing that carries another is touched
    home: Path  #: on a disk: bundles, workdirs, volumes, root file systems
    guest: Path  #: the static guest program
    runtimes: Mapping[str, Path]  #: ``gvisor`` or ``runc`` to its program, in order of preference
    state: Path | None = None  #: the runtimes' own state, best on a tmpfs; None chooses it by the mode

    def __post_init__(self) -> None:
        if not _INSTANCE.fullmatch(self.instance):
            raise ValueError("instance must be 12 hex digits")
        unknown = set(self.runtimes) - {"gvisor", "runc"}
        if unknown or not self.runtimes:
            raise ValueError(f"runtimes must name gvisor, runc or both, not {sorted(unknown) or 'nothing'}")

    @property
    def rootless(self) -> bool:
        return os.geteuid() != 0

    @property
    def bounds_disks(self) -> bool:
        """Whether a workdir is a disk of its own. That takes root, and e2fsprogs, which a minimal system may lack."""
        return not self.rootless and shutil.which("mkfs.ext4") is not None

    @property
    def owner(self) -> int:
        """The host's uid and gid of what a tenant writes: -1 is whoever runs the control plane."""
        return -1 if self.rootless else TENANT_ID


class Paths:
    """Every path of one deployment on this host. All of it is beneath directories of mode 0700."""

    def __init__(self, config: OciConfig) -> None:
        base = config.home.resolve() / "oci"
        mine = base / config.instance
        self.base = base
        self.mine = mine
        self.images = config.home.resolve() / "images"
        self.state = config.state.resolve() if config.state else _default_state(config)
        self.locks = self.state / "locks"
        self.bundles = mine / "bundles"
        self.disks = mine / "disks"
        self.mounts = mine / "mnt"
        self.volumes = mine / "volumes"
        self.templates = mine / "templates"
        self.rootfs = base / "rootfs"
        self.guests = base / "guests"

    def make(self) -> None:
        """Make the directories that have no better moment. Idempotent."""
        for path in (
            self.base,
            self.mine,
            self.bundles,
            self.disks,
            self.mounts,
            self.volumes,
            self.templates,
            self.rootfs,
            self.guests,
            self.state,
            self.locks,
        ):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def bundle(self, name: str) -> Path:
        return self.bundles / name

    def runtime_state(self, runtime: str) -> Path:
        return self.state / runtime


def _default_state(config: OciConfig) -> Path:
    directory = f"sandboxhub-{config.instance}"
    if not config.rootless:
        return Path("/run") / directory
    user_runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if user_runtime and os.access(user_runtime, os.W_OK | os.X_OK):
        return Path(user_runtime) / directory
    return config.home.resolve() / "run" / config.instance


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless ``name`` may be given to a runtime."""
    if not ANY_NAME.fullmatch(name):
        raise ValueError("not the name of a sandbox")
