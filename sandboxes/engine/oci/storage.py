"""Workdirs and volumes: what a sandbox may write to the host's disk."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from sandboxes.engine.oci import process
from sandboxes.engine.oci.config import ANY_NAME, VOLUME_NAME, Paths
from sandboxes.engine.oci.locks import Locks
from sandboxes.engine.oci.runtime import last_error
from sandboxes.errors import EngineError

_TOOL_TIMEOUT = 120.0  # seconds; an umount writes what is dirty


class Storage(Protocol):
    """The caller holds the sandbox's lock."""

    async def recover(self) -> None:
        """Remove what a crash left of disks and volumes that were being made or deleted."""

    async def attach(self, name: str, volume: str | None, size: int) -> Path:
        """The host's directory of the sandbox's workdir: its own of ``size`` bytes, or the volume's."""

    async def release(self, name: str) -> None:
        """Take the workdir away from a sandbox that has no process; its own is deleted. Idempotent."""

    def names(self) -> set[str]:
        """Sandboxes that hold a workdir."""

    async def ensure_volume(self, name: str, size: int) -> None: ...

    async def delete_volume(self, name: str) -> None: ...

    def volumes(self) -> dict[str, int]: ...


class VolumeDirectory:
    """The part of volumes that does not depend on what holds their data: ``<name>/meta.json`` with the size, made last."""

    def __init__(self, paths: Paths, locks: Locks) -> None:
        self._paths = paths
        self._locks = locks

    def lock(self, name: str) -> str:
        if not VOLUME_NAME.fullmatch(name):
            raise EngineError("that is not the name of a volume")
        return f"volume-{name}"

    def path(self, name: str) -> Path:
        return self._paths.volumes / name

    def exists(self, name: str) -> bool:
        return (self.path(name) / "meta.json").exists()

    def complete(self, name: str, size: int) -> None:
        new = self.path(name) / "meta.new"
        new.write_text(json.dumps({"size": size}))
        new.replace(self.path(name) / "meta.json")

    async def unfinished(self) -> AsyncIterator[str]:
        """Volumes that were being made or deleted when something crashed; the lock of each is held while it is yielded."""
        for name in os.listdir(self._paths.volumes):
            if not self.exists(name) and not self._locks.held(self.lock(name)):
                async with self._locks.hold(self.lock(name)):
                    if not self.exists(name):
                        yield name

    def all(self) -> dict[str, int]:
        found = {}
        for name in os.listdir(self._paths.volumes):
            try:
                found[name] = int(json.loads((self.path(name) / "meta.json").read_text())["size"])
            except FileNotFoundError:
                continue  # being made, or being deleted
        return found


async def run_tool(*argv: str, what: str) -> None:
    """Run a program of the host; ``EngineError`` in the words of ``what`` when it fails."""
    try:
        done = await process.run(argv, timeout=_TOOL_TIMEOUT)
    except FileNotFoundError as error:
        raise EngineError(f"{what}: {argv[0]} is not installed") from error
    if not done.ok:
        reason = "it did not end in time" if done.code is None else last_error(done.output)
        raise EngineError(f"{what}: {reason}")


def sandbox_names(directory: Path, suffix: str = "") -> set[str]:
    return {
        entry.removesuffix(suffix)
        for entry in os.listdir(directory)
        if entry.endswith(suffix) and ANY_NAME.fullmatch(entry.removesuffix(suffix))
    }
