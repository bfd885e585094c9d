"""Makes, keeps and bounds the streams to the guests of one engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandboxes.engine.base import ByteStream
from sandboxes.engine.kubernetes import boot
from sandboxes.engine.kubernetes.client import Cluster
from sandboxes.engine.kubernetes.streams import ExecStream, NoGuest
from sandboxes.errors import EngineError

_ANSWER_TIMEOUT = 30.0  #: seconds, from the exec to the guest's first word, an upload included
#: More than some 30 execs that start at once in one gVisor pod wedge it for good.
_STARTS_AT_ONCE = 8


class Connections:
    def __init__(self, cluster: Cluster, guest: Path) -> None:
        self._cluster = cluster
        self._guest = guest
        self._program = b""
        self._open: set[ExecStream] = set()
        self._first: dict[str, ExecStream] = {}
        self._slots: dict[str, tuple[asyncio.Semaphore, int]] = {}  # by pod: its places, and how many want one

    def load(self) -> None:
        """Read the guest program. Raises ``EngineError``."""
        try:
            self._program = self._guest.read_bytes()
        except OSError as error:
            raise EngineError(f"The guest program {self._guest} cannot be read: {error.strerror}. Run script/setup to build it.") from error
        if not self._program:
            raise EngineError(f"The guest program {self._guest} is empty.")

    def keep(self, name: str, stream: ExecStream) -> None:
        """Hold the connection that proved a sandbox until somebody wants one."""
        self.drop(name)
        self._first[name] = stream

    def drop(self, name: str) -> None:
        if stream := self._first.pop(name, None):
            stream.close()

    def take(self, name: str) -> ByteStream | None:
        """The kept connection."""
        stream = self._first.pop(name, None)
        return stream if stream is not None and stream.closed is None else None

    async def make(self, name: str) -> ExecStream:
        """A new one, on which the guest has spoken. Raises ``NoGuest``, ``Refused`` or ``EngineError``."""
        slots, wanted = self._slots.get(name) or (asyncio.Semaphore(_STARTS_AT_ONCE), 0)
        self._slots[name] = (slots, wanted + 1)
        try:
            async with slots:
                return await self._make(name)
        finally:
            slots, wanted = self._slots.pop(name)
            if wanted > 1:
                self._slots[name] = (slots, wanted - 1)

    async def _make(self, name: str) -> ExecStream:
        stream: ExecStream | None = None
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                socket = await self._cluster.exec(name, boot.connect(len(self._program)))
                stream = ExecStream(socket, self._open.discard)
                self._open.add(stream)
                await stream.greet(self._program)
        except TimeoutError:
            _close(stream)
            raise NoGuest("the guest does not answer") from None
        except BaseException:
            _close(stream)
            raise
        return stream

    async def close(self) -> None:
        self._first.clear()
        streams = list(self._open)
        for stream in streams:
            stream.close()
        await asyncio.gather(*(stream.closed for stream in streams if stream.closed is not None), return_exceptions=True)


def _close(stream: ExecStream | None) -> None:
    if stream is not None:
        stream.close()
