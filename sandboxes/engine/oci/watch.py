"""Tells at once, without polling, when a process ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from sandboxes.engine.oci.procfs import Identity, open_pidfd


class Watch:
    """At most one process per name."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._fds: dict[str, tuple[Identity, int]] = {}

    def arm(self, name: str, process: Identity) -> None:
        """Call ``ended(name)`` once when ``process`` ends, soon if it has ended already. Idempotent."""
        if name in self._fds and self._fds[name][0] == process:
            return
        self.forget(name)
        fd = open_pidfd(process)
        loop = asyncio.get_running_loop()
        if fd is None:
            loop.call_soon(self._ended, name)
            return
        self._fds[name] = (process, fd)
        loop.add_reader(fd, self._fire, name)

    def forget(self, name: str) -> None:
        found = self._fds.pop(name, None)
        if found is not None:
            asyncio.get_running_loop().remove_reader(found[1])
            os.close(found[1])

    def close(self) -> None:
        for name in list(self._fds):
            self.forget(name)

    def _fire(self, name: str) -> None:
        self.forget(name)
        self._ended(name)
