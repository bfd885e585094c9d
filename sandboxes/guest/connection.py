"""One connection to a guest: cuts the byte stream into frames, hands them to its streams, and ends all of them when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from sandboxes.engine.base import ByteStream
from sandboxes.errors import GuestLost
from sandboxes.guest import protocol as wire
from sandboxes.guest.flow import MAX_STREAMS, Budget, Waiters
from sandboxes.guest.protocol import HEADER, MAX_FRAME, Parser, Send, Violation

#: Bytes of frames that may still come for a stream that has ended, besides output within its credit.
_LATE_PER_STREAM = 4 << 10
_LATE_AT_MOST = 64 << 20
_REQUESTS_AT_ONCE = 8
#: Pieces of input of this many bytes belong to a flow, and more is likely to come.
_FLOW_PIECE = 16 << 10


class Stream(Protocol):
    """A command or a file operation."""

    def frame(self, kind: int, payload: memoryview) -> None:
        """Take a frame, or a part of one of output; ``payload`` is valid only during the call. Raises ``Violation``."""

    def wake(self) -> None:
        """The connection is lost: let every waiter find out."""


class Connection:
    """Implements ``sandboxes.engine.base.Receiver``. Nothing that the guest sends makes it raise: a violation ends the connection."""

    def __init__(self, stream: ByteStream) -> None:
        self.budget = Budget()
        self.hello: wire.HelloFrame | None = None
        self.reason: str | None = None  #: why it has ended, once it has
        self.on_end: Callable[[str], None] | None = None
        self.greeted = Waiters()
        self.input_credit = 0
        self._stream = stream
        self._parser = Parser(self._frame, self._more)
        self._streams: dict[int, Stream] = {}
        self._next_stream = 1
        self._next_request = 0
        self._requests: dict[tuple[int, int], asyncio.Future[int | None]] = {}
        self._answered = Waiters()
        self._max_streams = MAX_STREAMS
        self._slot_free = Waiters()
        self._late = 0  # bytes that released streams may still send
        self._input: list[memoryview] = []  # of one DATA frame that is not sent yet
        self._input_size = 0
        self._input_stream = 0

    # Receiver

    def data_received(self, data: memoryview) -> None:
        if self.reason is not None:
            return
        try:
            self._parser.feed(data)
        except Violation as error:
            self.end(f"the guest broke the protocol: {error}")

    def stream_lost(self, reason: str) -> None:
        self.end(reason)

    def end(self, reason: str) -> None:
        """Close, and wake everyone who waits for something on this connection. Idempotent: the first reason stays."""
        if self.reason is not None:
            return
        self.reason = reason
        self._stream.close()
        for stream in list(self._streams.values()):
            stream.wake()
        self._streams.clear()
        for future in self._requests.values():
            if not future.done():
                future.set_result(None)
        self._requests.clear()
        self.greeted.wake()
        self._answered.wake()
        self._slot_free.wake()
        if self.on_end is not None:
            self.on_end(reason)

    # What streams need

    def check(self) -> None:
        """Raises ``GuestLost`` once the connection has ended."""
        if self.reason is not None:
            raise GuestLost(self.reason)

    def send(self, kind: Send, stream: int, payload: bytes | memoryview = b"") -> None:
        """Queue a frame; without effect once the connection has ended."""
        self._flush()
        if self.reason is None:
            self._stream.write(b"".join((HEADER.pack(len(payload), kind, stream), payload)))

    def send_input(self, stream: int, data: memoryview) -> None:
        """Queue at most ``MAX_FRAME`` bytes of DATA, which must not change.

        What a flow brings in one turn of the loop goes as one frame, since each costs the guest, and what it feeds, a wake-up.
        """
        if stream != self._input_stream or self._input_size + len(data) > MAX_FRAME:
            self._flush()
        if not self._input:
            if len(data) < _FLOW_PIECE:
                self.send(Send.DATA, stream, data)
                return
            self._input_stream = stream
            asyncio.get_running_loop().call_soon(self._flush)
        self._input.append(data)
        self._input_size += len(data)
        if self._input_size == MAX_FRAME:
            self._flush()

    def _flush(self) -> None:
        if self._input:
            if self.reason is None:
                self._stream.write(b"".join((HEADER.pack(self._input_size, Send.DATA, self._input_stream), *self._input)))
            self._input.clear()
            self._input_size = 0

    async def drain(self) -> None:
        await self._stream.drain()

    async def slot(self) -> None:
        """Wait until one more stream may be opened. ``add`` has to follow before the next await. Raises ``GuestLost``."""
        self.check()
        while len(self._streams) >= self._max_streams:
            await self._slot_free.wait()
            self.check()

    def add(self, stream: Stream) -> int:
        """Give a stream its number."""
        number = self._next_stream
        self._next_stream += 1
        self._streams[number] = stream
        return number

    def remove(self, number: int, *, late: int = 0) -> None:
        """Forget a stream. ``late`` bytes of output, sent before the guest heard of that, may still come."""
        if self._streams.pop(number, None) is not None:
            self._late = min(self._late + late + _LATE_PER_STREAM, _LATE_AT_MOST)
            self._slot_free.wake()

    def request_number(self) -> int:
        self._next_request = (self._next_request + 1) & 0xFFFF_FFFF
        return self._next_request

    async def request(self, kind: Send, answer: int, number: int, payload: bytes) -> int:
        """Send a frame on stream 0 and wait for the answer to it. Raises ``GuestLost``.

        Waits while too many wait for an answer of this type: a guest may take more for an attack.
        """
        self.check()
        while sum(waiting == answer for waiting, _ in self._requests) >= _REQUESTS_AT_ONCE:
            await self._answered.wait()
            self.check()
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._requests[answer, number] = future
        self.send(kind, 0, payload)
        result = await future
        if result is None:
            raise GuestLost(self.reason or "")
        return result

    # Frames

    def _frame(self, kind: int, number: int, payload: memoryview) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            stream.frame(kind, payload)
        elif number == 0:
            self._connection_frame(kind, payload)
        elif self.hello is None:
            raise Violation("it did not say hello first")
        elif number >= self._next_stream:
            raise Violation(f"a frame for stream {number}, which was never opened")
        else:
            self._came_late(number, HEADER.size + len(payload))

    def _more(self, kind: int, number: int, payload: memoryview) -> None:
        """Take the next part of a frame of output."""
        if (stream := self._streams.get(number)) is not None:
            stream.frame(kind, payload)
        else:
            self._came_late(number, len(payload))

    def _came_late(self, number: int, size: int) -> None:
        self._late -= size
        if self._late < 0:
            raise Violation(f"a frame for stream {number}, which has ended")

    def _connection_frame(self, kind: int, payload: memoryview) -> None:
        if kind == wire.ERROR:
            text = wire.clean_text(wire.decode_string(payload))
            raise Violation(f"it refused a frame: {text}")
        if self.hello is None:
            if kind != wire.HELLO:
                raise Violation("it did not say hello first")
            self.hello = wire.decode_hello(payload)
            self.input_credit = self.hello.input_credit
            self._max_streams = min(MAX_STREAMS, self.hello.max_streams)
            self.greeted.wake()
        elif kind == wire.PONG:
            (number,) = wire.unpack(wire.U64, payload)
            self._answer(kind, number, number)
        elif kind == wire.GOT_STOPPED:
            number, count = wire.unpack(wire.STOPPED, payload)
            self._answer(kind, number, count)
        else:
            raise Violation(f"an unexpected frame of type {kind:#x}")

    def _answer(self, kind: int, number: int, result: int) -> None:
        future = self._requests.pop((kind, number), None)
        if future is None:
            raise Violation(f"an answer of type {kind:#x} to nothing that was asked")
        if not future.done():
            future.set_result(result)
        self._answered.wake()
