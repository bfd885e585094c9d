"""The oci engine under the contract suite: runsc and runc, as root or as an ordinary user, whichever runs the tests."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sandboxes.engine.oci import OciConfig, OciEngine


class OciTarget:
    engine = "oci"
    workdir = "/mnt/data"
    volumes = True
    bounded = ("/tmp", "/run", "/dev/shm")
    image, missing_image = "host", "no-such-image"
    guest_uid = 0
    engine_program = """
import os
from pathlib import Path
from sandboxes.engine.oci import OciConfig, OciEngine
def make():
    e = os.environ
    home, state, guest, program = (Path(e["TARGET_" + key]) for key in ("HOME", "STATE", "GUEST", "PROGRAM"))
    return OciEngine(OciConfig(e["TARGET_INSTANCE"], home, guest, {e["TARGET_RUNTIME"]: program}, state))
"""

    def __init__(self, runtime: str, program: Path, guest: Path, home: Path) -> None:
        self.runtime = runtime
        self.rootless = os.geteuid() != 0
        self.tenant_uid = 0 if self.rootless else 1000
        self._program = program
        self._guest = guest
        self._home = home
        self._instance, self._foreign = secrets.token_hex(6), secrets.token_hex(6)

    def config(self, instance: str) -> OciConfig:
        state = Path("/run") if not self.rootless else self._home / "run"
        return OciConfig(instance, self._home, self._guest, {self.runtime: self._program}, state / f"sandboxhub-{instance}")

    def make(self) -> OciEngine:
        return OciEngine(self.config(self._instance))

    def make_foreign(self) -> OciEngine:
        return OciEngine(self.config(self._foreign))

    async def kill(self, name: str) -> None:
        os.kill(self._first_process(name), signal.SIGKILL)

    async def freeze(self, name: str) -> None:
        os.kill(self._first_process(name), signal.SIGSTOP)

    async def leaks(self) -> list[str]:
        return await asyncio.to_thread(self._leaks)

    async def clean(self) -> None:
        await asyncio.to_thread(self._clean)

    @property
    def environment(self) -> Mapping[str, str]:
        config = self.config(self._instance)
        return {
            "TARGET_INSTANCE": config.instance,
            "TARGET_HOME": str(config.home),
            "TARGET_STATE": str(config.state),
            "TARGET_GUEST": str(config.guest),
            "TARGET_RUNTIME": self.runtime,
            "TARGET_PROGRAM": str(self._program),
        }

    def _first_process(self, name: str) -> int:
        meta = self._home / "oci" / self._instance / "bundles" / name / "meta.json"
        return int(json.loads(meta.read_text())["process"]["pid"])

    def _leaks(self) -> list[str]:
        return [leak for instance in (self._instance, self._foreign) for leak in self.leaks_of(self.config(instance))]

    def _clean(self) -> None:
        for instance in (self._instance, self._foreign):
            self.clean_up(self.config(instance))

    @staticmethod
    def leaks_of(config: OciConfig) -> list[str]:
        """What is left of the sandboxes of one deployment; mounts and loop devices of all that share its home."""
        mine = config.home / "oci" / config.instance
        state = config.state
        assert state is not None
        found = [str(path) for directory in ("bundles", "disks", "mnt") for path in _children(mine / directory)]
        found += [
            str(path) for directory in ("locks", *config.runtimes) for path in _children(state / directory) if path.name != "null-netns"
        ]
        for hierarchy in _cgroups(config.instance):
            found += [str(path) for path in _children(hierarchy) if path.is_dir()]
        found += [line for line in _processes() if str(state) in line]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found += [line for line in mounts if f"{config.home}/" in line and "null-netns" not in line]
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            try:
                found += [text for text in [backing.read_text()] if str(config.home) in text]
            except OSError:
                continue
        return found

    @staticmethod
    def clean_up(config: OciConfig) -> None:
        """Remove what a deployment keeps when no sandbox runs."""
        assert config.state is not None
        for netns in config.state.glob("*/null-netns"):
            subprocess.run(["umount", str(netns)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(config.state, ignore_errors=True)
        for hierarchy in _cgroups(config.instance):
            hierarchy.rmdir()


def _cgroups(instance: str) -> list[Path]:
    """Of version 2, or in each hierarchy of version 1."""
    tops = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
    return [top / f"sandboxhub-{instance}" for top in tops if (top / f"sandboxhub-{instance}").is_dir()]


def _children(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.exists() else []


def _processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and arguments:
                found.append(arguments)
    return found
