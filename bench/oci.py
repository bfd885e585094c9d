"""The oci engine and its baseline, the runtimes' own command lines on this machine."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from bench.bare import Bare, Pty
from bench.sides import Bench, Direct, new_name
from sandboxes.engine.base import Limits
from sandboxes.engine.oci.cgroups import Cgroups, hierarchies
from sandboxes.engine.oci.config import HOST_IMAGE, OciConfig, Paths
from sandboxes.engine.oci.engine import OciEngine
from sandboxes.engine.oci.mounts import read_mounts


@asynccontextmanager
async def oci(programs: dict[str, Path], limits: Limits, guest: Path, scratch: Path, server: Path) -> AsyncIterator[Bench]:
    """``scratch``: for all that is made here; ``server``: the home of the server."""
    config = OciConfig(
        instance=secrets.token_hex(6), home=scratch / "direct", guest=guest, runtimes=programs, state=scratch / "direct-state"
    )

    def baseline(runtime: str, name: str) -> Containers:
        return Containers(_bare(runtime, name, config, limits, scratch / f"bare-{runtime}"))

    try:
        yield Bench("oci", {}, Direct(OciEngine(config), HOST_IMAGE, limits), baseline)
    finally:
        _clean_up(scratch, config, server)


class Containers:
    """Implements ``bench.sides.Baseline``. While a command runs, nothing else does in this process."""

    part = "its disk"

    def __init__(self, bare: Bare) -> None:
        self._bare = bare
        self._name = new_name()

    async def open(self) -> None:
        self._bare.prepare(self._name)
        self._bare.start(self._name)

    async def close(self) -> None:
        self._bare.close()

    async def exec(self, *argv: str) -> None:
        self._bare.exec(self._name, *argv)

    async def take(self, *argv: str) -> int:
        return self._bare.take(self._name, *argv)

    async def give(self, size: int, *argv: str) -> None:
        self._bare.give(self._name, size, *argv)

    async def create(self) -> tuple[float, float]:
        name, began = new_name(), perf_counter()
        self._bare.prepare(name)
        prepared = perf_counter() - began
        self._bare.start(name)
        self._bare.exec(name, "true")
        whole = perf_counter() - began
        self._bare.delete(name)
        return prepared, whole

    def terminal(self, *argv: str) -> contextlib.AbstractContextManager[Pty]:
        return self._bare.terminal(self._name, *argv)


def _bare(runtime: str, name: str, config: OciConfig, limits: Limits, home: Path) -> Bare:
    """Made from the bundle of the sandbox ``name``."""
    paths = Paths(config)
    bundle = json.loads((paths.bundle(name) / "config.json").read_text())
    template = None if config.rootless else paths.templates / f"{limits.disk}.img"
    cgroups = Cgroups(config.instance, [] if config.rootless else hierarchies())
    return Bare(runtime, config.runtimes[runtime], bundle, template, home, cgroups)


def _clean_up(scratch: Path, config: OciConfig, server: Path) -> None:
    """Remove what deployments keep outside of their homes for their next start."""
    instances = [config.instance, *(path.name for path in (server / "oci").glob("?" * 12))]
    states = [Path("/run") / f"sandboxhub-{instance}" for instance in instances]
    for mount in reversed(read_mounts()):
        if any(Path(mount.target).is_relative_to(place) for place in (scratch, *states)):
            subprocess.run(["umount", mount.target], check=True)
    for state in states:
        shutil.rmtree(state, ignore_errors=True)
    if not config.rootless:
        for parent in (hierarchy / f"sandboxhub-{instance}" for hierarchy in hierarchies() for instance in instances):
            if parent.exists():
                parent.rmdir()
