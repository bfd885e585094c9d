"""Workdirs and volumes as plain directories, which nothing bounds: for a rootless engine, and for a host that cannot make ext4 disks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sandboxes.engine.oci.config import Paths
from sandboxes.engine.oci.locks import Locks
from sandboxes.engine.oci.storage import VolumeDirectory, run_tool, sandbox_names
from sandboxes.errors import EngineError


class Directories:
    """``mnt/<name>`` is the workdir, or a symbolic link to the data of the volume that the sandbox holds."""

    def __init__(self, paths: Paths, locks: Locks, owner: int) -> None:
        """``owner``: uid and gid of the tenant on the host, -1 for the engine's own."""
        self._owner = owner
        self._paths = paths
        self._locks = locks
        self._volumes = VolumeDirectory(paths, locks)

    async def recover(self) -> None:
        async for name in self._volumes.unfinished():
            await _remove_tree(self._volumes.path(name))

    async def attach(self, name: str, volume: str | None, size: int) -> Path:
        place = self._paths.mounts / name
        if volume is None:
            place.mkdir(mode=0o755)
            os.chown(place, self._owner, self._owner)
            return place
        async with self._locks.hold(self._volumes.lock(volume)):
            if not self._volumes.exists(volume):
                raise EngineError("the volume does not exist")
            if self._held(volume):
                raise EngineError("another sandbox holds the volume")
            place.symlink_to(self._data(volume))
        return self._data(volume)

    async def release(self, name: str) -> None:
        place = self._paths.mounts / name
        if place.is_symlink():
            place.unlink()
        else:
            await _remove_tree(place)

    def names(self) -> set[str]:
        return sandbox_names(self._paths.mounts)

    async def ensure_volume(self, name: str, size: int) -> None:
        async with self._locks.hold(self._volumes.lock(name)):
            if not self._volumes.exists(name):
                self._data(name).mkdir(mode=0o755, parents=True, exist_ok=True)
                os.chown(self._data(name), self._owner, self._owner)
                self._volumes.complete(name, size)

    async def delete_volume(self, name: str) -> None:
        async with self._locks.hold(self._volumes.lock(name)):
            if self._held(name):
                raise EngineError("a sandbox still holds the volume")
            (self._volumes.path(name) / "meta.json").unlink(missing_ok=True)
            await _remove_tree(self._volumes.path(name))

    def volumes(self) -> dict[str, int]:
        return self._volumes.all()

    def _data(self, volume: str) -> Path:
        return self._volumes.path(volume) / "data"

    def _held(self, volume: str) -> bool:
        wanted = str(self._data(volume))
        return any(place.is_symlink() and os.readlink(place) == wanted for place in self._paths.mounts.iterdir())


async def _remove_tree(path: Path) -> None:
    """Remove what a tenant may have nested beyond any recursion and closed to its owner. Follows no links."""
    if not await asyncio.to_thread(os.path.lexists, path):
        return
    await run_tool("chmod", "-R", "u+rwX", str(path), what="a workdir could not be opened for removal")
    await run_tool("rm", "-rf", "--one-file-system", str(path), what="a workdir could not be removed")
