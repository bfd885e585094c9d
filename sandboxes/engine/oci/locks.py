"""One lock for each sandbox and volume, over tasks and processes of this host."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_RETRY = 0.02  # seconds; only another process is ever waited for like this


class Locks:
    """``flock`` on a file of the lock's name. A crash lets go of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._local: dict[str, tuple[asyncio.Lock, int]] = {}  # with the number of tasks that hold or want it

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        lock, users = self._local.get(name, (asyncio.Lock(), 0))
        self._local[name] = (lock, users + 1)
        try:
            async with lock:
                fd = await self._acquire(name)
                try:
                    yield
                finally:
                    # Removed while it is held: whoever waits on the removed file finds out and makes a new one.
                    (self._directory / name).unlink(missing_ok=True)
                    os.close(fd)
        finally:
            lock, users = self._local[name]
            if users == 1:
                del self._local[name]
            else:
                self._local[name] = (lock, users - 1)

    def held(self, name: str) -> bool:
        """Whether some task or process holds it at this moment."""
        try:
            fd = os.open(self._directory / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _try(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    async def sweep(self) -> None:
        """Remove the files that a crash left."""
        for entry in os.listdir(self._directory):
            if not self.held(entry):
                async with self.hold(entry):
                    pass

    async def _acquire(self, name: str) -> int:
        path = self._directory / name
        while True:
            fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _try(fd, fcntl.LOCK_EX) and _is_at(fd, path):
                return fd
            os.close(fd)
            await asyncio.sleep(_RETRY)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
