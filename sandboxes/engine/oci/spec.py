"""The OCI runtime configuration (``config.json``) of a sandbox. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.oci import seccomp
from sandboxes.engine.oci.config import GUEST_DIRECTORY, GUEST_PROGRAM, TENANT_ID
from sandboxes.engine.tmpfs import tmpfs_sizes

_MIB = 1 << 20
_NOFILE = 65536
_CPU_PERIOD = 100_000  # microseconds, the kernel's default
#: Room for what the runtime itself runs in the sandbox's cgroup: the guest's threads, the client of an exec.
_RUNC_OWN_PIDS = 32
_GUEST_CAPABILITIES = ["CAP_KILL", "CAP_SETGID", "CAP_SETUID"]
#: Tenant code is what the host's out-of-memory killer takes first.
_OOM_SCORE = 500


@dataclass(frozen=True)
class Place:
    """Where things are on the host for one sandbox, and how the host runs it."""

    runtime: str  #: ``gvisor`` or ``runc``
    rootfs: Path
    usr: Path | None  #: mounted at /usr; None when the root file system has its own
    workdir: Path
    guest: Path  #: the directory that holds the guest program
    cgroup: str | None  #: None when this mode has no cgroups
    user: tuple[int, int] | None  #: uid and gid of an ordinary user that runs this; None for root
    bounds_disk: bool  #: the workdir is a disk of its own
    bounds_pids: bool  #: the process bound of a sandbox can be told by RLIMIT_NPROC
    ceilings: Mapping[str, int]  #: the hard limits of the engine's own process: not even root may always exceed them


def sentry_pids(pids: int) -> int:
    """The host's bound for a gVisor sandbox of ``pids`` processes. Hitting it kills the sandbox, so it lies well above the bound inside."""
    return 2 * pids + 256


def build(spec: Spec, place: Place) -> dict[str, Any]:
    """The whole ``config.json``."""
    linux: dict[str, Any] = {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]}
    if place.runtime == "runc":
        linux["seccomp"] = seccomp.profile()
        linux["maskedPaths"] = _MASKED
        linux["readonlyPaths"] = _READ_ONLY
        if place.user is not None:
            uid, gid = place.user
            linux["namespaces"].append({"type": "user"})
            linux["uidMappings"] = [{"containerID": 0, "hostID": uid, "size": 1}]
            linux["gidMappings"] = [{"containerID": 0, "hostID": gid, "size": 1}]
    if place.cgroup is not None:
        if place.runtime == "runc":
            linux["namespaces"].append({"type": "cgroup"})
        linux["cgroupsPath"] = place.cgroup
        linux["resources"] = _resources(spec.limits, place)
    return {
        "ociVersion": "1.0.2",
        "process": _process(spec, place),
        "root": {"path": str(place.rootfs), "readonly": True},
        "hostname": "sandbox",
        "mounts": _mounts(spec, place),
        "annotations": {f"sandboxhub.{key}": value for key, value in spec.labels.items()},
        "linux": linux,
    }


def _process(spec: Spec, place: Place) -> dict[str, Any]:
    arguments = [GUEST_PROGRAM, "init", "--stdio", "--workdir", spec.workdir]
    capabilities: list[str] = []
    if place.user is None:
        arguments += ["--uid", str(TENANT_ID), "--gid", str(TENANT_ID)]
        if place.runtime == "gvisor":  # counts the processes of each user apart
            arguments.append("--own-pids")
        capabilities = _GUEST_CAPABILITIES
    limits = {"RLIMIT_NOFILE": _NOFILE, "RLIMIT_CORE": 0}
    if place.bounds_pids:
        limits["RLIMIT_NPROC"] = spec.limits.pids
    if not place.bounds_disk:
        limits["RLIMIT_FSIZE"] = spec.limits.disk
    limits = {kind: min(value, place.ceilings.get(kind, value)) for kind, value in limits.items()}
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": arguments,
        "env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"],
        "cwd": "/",
        "noNewPrivileges": True,
        "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")},
        "rlimits": [{"type": kind, "hard": value, "soft": value} for kind, value in limits.items()],
        "oomScoreAdj": _OOM_SCORE,
    }


def _mounts(spec: Spec, place: Place) -> list[dict[str, Any]]:
    sizes = tmpfs_sizes(spec.limits.memory)
    tenant = TENANT_ID if place.user is None else 0

    def mount(destination: str, kind: str, *options: str, source: str | Path = "") -> dict[str, Any]:
        return {"destination": destination, "type": kind, "source": str(source) or kind, "options": list(options)}

    found = [
        mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        mount("/dev", "tmpfs", "nosuid", "mode=755", f"size={_MIB}"),
        mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
        mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777", f"size={sizes.shm}"),  # noqa: S108
        mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777", f"size={sizes.tmp}"),  # noqa: S108
        # Owned, because runc gives a tmpfs the mode of the directory beneath it.
        mount("/run", "tmpfs", "nosuid", "nodev", "mode=755", f"uid={tenant}", f"gid={tenant}", f"size={sizes.run}"),
    ]
    if place.runtime == "gvisor":
        found.append(mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"))
    if place.usr is not None:
        found.append(mount("/usr", "bind", *_usr_options(place), "ro", "nosuid", "nodev", source=place.usr))
    found.append(mount(GUEST_DIRECTORY, "bind", "bind", "ro", "nosuid", "nodev", source=place.guest))
    found.append(mount(spec.workdir, "bind", "bind", "rw", "nosuid", "nodev", source=place.workdir))
    return found


def _usr_options(place: Place) -> tuple[str, ...]:
    """How to show what a host has mounted beneath its /usr.

    ``ro`` makes only the upper mount read-only to the kernel, and so under runc, whose tenant is a user of the host. As root they are
    left out; a user namespace may not show a part of a mount tree, but may make all of it read-only (``rro``). gVisor's ``ro`` is its own.
    """
    if place.runtime != "runc":
        return ("rbind",)
    return ("bind",) if place.user is None else ("rbind", "rro")


def _resources(limits: Limits, place: Place) -> dict[str, Any]:
    pids = sentry_pids(limits.pids) if place.runtime == "gvisor" else limits.pids + _RUNC_OWN_PIDS
    resources: dict[str, Any] = {
        "memory": {"limit": limits.memory, "swap": limits.memory},
        "cpu": {"quota": int(limits.cpus * _CPU_PERIOD), "period": _CPU_PERIOD},
        "pids": {"limit": pids},
    }
    if place.runtime == "runc":
        resources["devices"] = [{"allow": False, "access": "rwm"}]  # runc adds the harmless ones of /dev
    return resources


_MASKED = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys",
]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
