"""Workdirs and volumes of an engine that runs as root: each an ext4 file system in a sparse file, so that a full one harms nobody else."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Collection
from pathlib import Path

from sandboxes.engine.oci.config import TENANT_ID, Paths
from sandboxes.engine.oci.locks import Locks
from sandboxes.engine.oci.mounts import read_mounts
from sandboxes.engine.oci.storage import VolumeDirectory, run_tool, sandbox_names
from sandboxes.engine.tasks import finish
from sandboxes.errors import EngineError

#: Without noinit_itable the kernel would write the file's unused inode tables in the background, and the file would not stay sparse.
_MOUNT_OPTIONS = "loop,nosuid,nodev,noinit_itable"
_UMOUNT_TRIES = 40
_DETACH_TRIES = 100
_PAUSE = 0.05  # seconds between tries
_SMALLEST = 8 << 20


class LoopDisks:
    """A workdir is ``disks/<name>.img``, a volume ``volumes/<name>/disk.img``; either is mounted at ``mnt/<name of the sandbox>``."""

    def __init__(self, paths: Paths, locks: Locks) -> None:
        self._paths = paths
        self._locks = locks
        self._volumes = VolumeDirectory(paths, locks)

    async def recover(self) -> None:
        for new in self._paths.templates.glob("*.new"):
            lock = f"template-{new.stem}"
            if not self._locks.held(lock):
                async with self._locks.hold(lock):
                    await self._let_go(new)
        async for name in self._volumes.unfinished():
            await self._remove_volume(name)

    async def attach(self, name: str, volume: str | None, size: int) -> Path:
        target = self._paths.mounts / name
        target.mkdir(mode=0o700)
        if volume is None:
            image = self._own(name)
            template = await self._template(size)
            await finish(asyncio.to_thread(_copy_sparse, template, image))
            await self._mount(image, target)
            return target
        async with self._locks.hold(self._volumes.lock(volume)):
            if not self._volumes.exists(volume):
                raise EngineError("the volume does not exist")
            image = self._data(volume)
            if await _in_use(image):
                raise EngineError("another sandbox holds the volume")
            await self._mount(image, target)
        return target

    async def release(self, name: str) -> None:
        target = self._paths.mounts / name
        images = await asyncio.to_thread(self._images_at, target)
        await self._dismount(target, {*images, self._own(name)})
        self._own(name).unlink(missing_ok=True)

    def names(self) -> set[str]:
        return sandbox_names(self._paths.mounts) | sandbox_names(self._paths.disks, ".img")

    async def ensure_volume(self, name: str, size: int) -> None:
        async with self._locks.hold(self._volumes.lock(name)):
            if self._volumes.exists(name):
                return
            self._volumes.path(name).mkdir(mode=0o700, exist_ok=True)
            # With a journal: a volume outlives a crash of the host.
            await finish(self._format(self._data(name), size, journal=True))
            self._volumes.complete(name, size)

    async def delete_volume(self, name: str) -> None:
        async with self._locks.hold(self._volumes.lock(name)):
            if self._volumes.exists(name) and await _in_use(self._data(name)):
                raise EngineError("a sandbox still holds the volume")
            await self._remove_volume(name)

    def volumes(self) -> dict[str, int]:
        return self._volumes.all()

    async def _remove_volume(self, name: str) -> None:
        path = self._volumes.path(name)
        (path / "meta.json").unlink(missing_ok=True)
        (path / "meta.new").unlink(missing_ok=True)
        await self._let_go(self._data(name))
        if path.exists():
            path.rmdir()

    def _own(self, name: str) -> Path:
        return self._paths.disks / f"{name}.img"

    def _data(self, volume: str) -> Path:
        return self._volumes.path(volume) / "disk.img"

    async def _template(self, size: int) -> Path:
        """An empty disk of ``size`` bytes, formatted once."""
        path = self._paths.templates / f"{size}.img"
        if not path.exists():
            async with self._locks.hold(f"template-{size}"):
                if not path.exists():
                    new = path.with_suffix(".new")
                    await finish(self._format(new, size, journal=False))
                    new.replace(path)
        return path

    async def _format(self, image: Path, size: int, *, journal: bool) -> None:
        """To be finished once begun: cut short, it would leave the new disk mounted."""
        if size < _SMALLEST:
            raise EngineError(f"a disk has at least {_SMALLEST >> 20} MiB")
        await self._let_go(image)
        with image.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.truncate(size)
        features = ["-O", "^has_journal"] if not journal else []
        extended = f"lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner={TENANT_ID}:{TENANT_ID}"
        await run_tool("mkfs.ext4", "-q", "-F", "-m", "0", *features, "-E", extended, str(image), what="a disk could not be formatted")
        at = image.with_suffix(".mnt")
        at.mkdir(mode=0o700)
        await self._mount(image, at)
        (at / "lost+found").rmdir()
        await self._dismount(at, {image})

    async def _let_go(self, image: Path) -> None:
        """Remove an image that was being formatted, if there is one."""
        await self._dismount(image.with_suffix(".mnt"), {image})
        image.unlink(missing_ok=True)

    async def _mount(self, image: Path, target: Path) -> None:
        await run_tool("mount", "-t", "ext4", "-o", _MOUNT_OPTIONS, str(image), str(target), what="a disk could not be mounted")

    async def _umount(self, target: Path) -> None:
        tries = 0
        while await asyncio.to_thread(_is_mounted, target):
            # A runtime that starts at this moment has a copy of all mounts for an instant. In the end, let the kernel finish when it can.
            lazily = ["-l"] if tries >= _UMOUNT_TRIES else []
            try:
                await run_tool("umount", *lazily, str(target), what="a disk could not be unmounted")
            except EngineError:
                if lazily:
                    raise
                await asyncio.sleep(_PAUSE)
            tries += 1

    async def _dismount(self, target: Path, images: Collection[Path]) -> None:
        """Wait until there is neither a mount at ``target`` nor a directory, and no loop device of ``images``.

        Such a device detaches itself with the last user of the file system. A mount may be made only now, by a tool whose control plane
        was killed.
        """
        for tries in range(_DETACH_TRIES):
            await self._umount(target)
            devices = [device for image in images for device in await asyncio.to_thread(_loops, image)]
            if not devices and _removed(target):
                return
            if tries == _DETACH_TRIES // 2:
                for device in devices:  # one that a crash left between making and mounting it
                    await run_tool("losetup", "-d", device, what="a loop device could not be detached")
            await asyncio.sleep(_PAUSE)
        raise EngineError("the disk of the sandbox is still in use on the host")

    def _images_at(self, target: Path) -> list[Path]:
        """The files that are mounted at ``target``."""
        devices = [Path(mount.source).name for mount in read_mounts() if mount.target == str(target)]
        return [Path(backing) for device in devices if (backing := _backing(device))]


async def _in_use(image: Path) -> bool:
    return len(await asyncio.to_thread(_loops, image)) > 0


def _is_mounted(target: Path) -> bool:
    return any(mount.target == str(target) for mount in read_mounts())


def _removed(directory: Path) -> bool:
    """Whether it is gone; a mount point stays."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def _loops(image: Path) -> list[str]:
    """The loop devices of ``image``."""
    wanted = (str(image), f"{image} (deleted)")
    names = [entry for entry in os.listdir("/sys/block") if entry.startswith("loop")]
    return [f"/dev/{name}" for name in names if _backing(name) in wanted]


def _backing(device: str) -> str | None:
    try:
        return Path(f"/sys/block/{device}/loop/backing_file").read_text().rstrip("\n")
    except OSError:
        return None


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy only what ``source`` holds, sharing it where the file system can."""
    with source.open("rb") as read, target.open("xb") as write:
        os.fchmod(write.fileno(), 0o600)
        size = os.fstat(read.fileno()).st_size
        write.truncate(size)
        start = 0
        while start < size:
            try:
                start = os.lseek(read.fileno(), start, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole follows
                    return
                raise
            end = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            while start < end:
                copied = os.copy_file_range(read.fileno(), write.fileno(), end - start, start, start)
                if copied == 0:
                    raise EngineError("a disk could not be copied")
                start += copied
