"""Byte streams to guests, each over the WebSocket of one exec."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp

from sandboxes.engine.base import Receiver
from sandboxes.engine.kubernetes import boot
from sandboxes.engine.kubernetes.channels import PAYLOAD_MOST, STATUS, STDERR, STDOUT, Status, parse_status, to_stdin
from sandboxes.errors import EngineUnavailable

_HIGH_WATER = 256 << 10
_PING_EVERY = 15.0  #: seconds; load balancers forget connections that are silent for longer
_STDERR_MOST = 2 << 10
_CLOSE_MOST = 5.0  #: seconds
_NODE_ANSWERS = 10.0  #: seconds until an exec that was taken has begun; a kubelet that hangs never begins it


class NoGuest(Exception):
    """An exec did not lead to a guest."""

    def __init__(self, detail: str, *, not_up_yet: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.not_up_yet = not_up_yet  #: its container does not run yet, or does not any more


class ExecStream:
    """Implements ``sandboxes.engine.base.ByteStream``. ``greet`` comes first, then ``attach``.

    Nothing reads the socket but the two, so that a guest whose output nobody wants is stopped by TCP.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, on_close: Callable[[ExecStream], None]) -> None:
        self._socket = socket
        self._on_close = on_close
        self._receiver: Receiver | None = None
        self._early = b""  # what the guest said before there was a receiver
        self._said = bytearray()  # on stderr
        self._queue = bytearray()
        self._more = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost: str | None = None
        self._ping_due = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_PING_EVERY, self._tick)
        self._writer = loop.create_task(self._write())
        self._reader: asyncio.Task[None] | None = None
        self.closed: asyncio.Task[None] | None = None  #: the clean-up, once it has begun

    async def greet(self, program: bytes) -> None:
        """Wait until the guest speaks, giving it ``program``, the guest itself, if there is none yet.

        Raises ``NoGuest`` or ``EngineUnavailable``. What the guest said stays for the receiver.
        """
        try:
            async with asyncio.timeout(_NODE_ANSWERS):
                said = await self._first()
        except TimeoutError:  # not the guest's silence: the exec has not even begun
            raise EngineUnavailable("The node of the sandbox does not answer.") from None
        if said[:1] == boot.ASKS_FOR_GUEST:
            self.write(program)
        elif said[:1] != boot.FOUND_GUEST:
            raise NoGuest("something else answers in the place of the guest")
        self._early = said[1:] or await self._first()

    def attach(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise RuntimeError("the stream has a receiver already")
        self._receiver = receiver
        if self._lost is not None:
            asyncio.get_running_loop().call_soon(receiver.stream_lost, self._lost)
        else:
            self._reader = asyncio.get_running_loop().create_task(self._read(receiver))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost is not None or self._writer.done():
            return
        self._queue += data
        self._more.set()
        if len(self._queue) > _HIGH_WATER:
            self._writable.clear()

    async def drain(self) -> None:
        await self._writable.wait()

    def close(self) -> None:
        self._end("the connection was closed")

    # How it works

    async def _first(self) -> bytes:
        """The next bytes of stdout, before there is a receiver."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                if message.type is aiohttp.WSMsgType.TEXT:
                    continue
                raise NoGuest("the connection was closed before the guest said hello")
            channel, payload = _split(message.data)
            if channel == STDOUT and payload:
                return bytes(payload)
            if channel == STDERR:
                self._note(payload)
            elif channel == STATUS:
                status = parse_status(payload)
                if status.node_away:
                    raise EngineUnavailable("The node of the sandbox cannot be reached.")
                raise NoGuest(self._explain(status), not_up_yet=status.not_up_yet)

    async def _read(self, receiver: Receiver) -> None:
        reason = "the connection to the sandbox broke"
        try:
            if self._early:
                early, self._early = self._early, b""
                receiver.data_received(memoryview(early))
            while self._lost is None:
                message = await self._socket.receive()
                if message.type is not aiohttp.WSMsgType.BINARY:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        continue
                    break
                channel, payload = _split(message.data)
                if channel == STDOUT:
                    if payload:
                        receiver.data_received(payload)
                elif channel == STDERR:
                    self._note(payload)
                elif channel == STATUS:
                    reason = self._explain(parse_status(payload))
                    break
        finally:
            self._end(reason)

    async def _write(self) -> None:
        reason = "the connection to the sandbox broke"
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                if self._ping_due:
                    self._ping_due = False
                    await self._socket.ping()
                while self._queue:
                    piece = to_stdin(memoryview(self._queue)[:PAYLOAD_MOST])
                    del self._queue[:PAYLOAD_MOST]
                    if len(self._queue) <= _HIGH_WATER:
                        self._writable.set()
                    await self._socket.send_bytes(piece)
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection to the sandbox broke: {error}"
        finally:
            if self._reader is None or self._reader.done():
                self._end(reason)
            elif self._lost is None:
                self._writable.clear()  # the reader, whose socket is broken too, may find out more: what the status says

    def _tick(self) -> None:
        self._ping_due = True
        self._more.set()
        self._timer = asyncio.get_running_loop().call_later(_PING_EVERY, self._tick)

    def _end(self, reason: str) -> None:
        """Once: nothing is delivered or sent from now on."""
        if self._lost is not None:
            return
        self._lost = reason
        self._timer.cancel()
        self._queue.clear()
        self._writable.set()
        loop = asyncio.get_running_loop()
        if self._receiver is not None:
            loop.call_soon(self._receiver.stream_lost, reason)
        self.closed = loop.create_task(self._shut())

    async def _shut(self) -> None:
        tasks = [task for task in (self._writer, self._reader) if task is not None and task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        # Not a polite close: that would wait for a peer which may be stuck. The guest sees the end of its input either way.
        transport = self._socket.get_extra_info("transport")
        if transport is not None:
            transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):  # all that counts is closed already
            async with asyncio.timeout(_CLOSE_MOST):
                await self._socket.close()
        self._on_close(self)

    def _note(self, payload: memoryview) -> None:
        self._said += payload[: _STDERR_MOST - len(self._said)]

    def _explain(self, status: Status) -> str:
        said = self._said.decode(errors="replace").strip()
        if status.node_away:
            return "the node of the sandbox cannot be reached"
        if status.code is None:
            return f"the cluster ended the connection: {status.message or 'without a reason'}"
        if said:
            return said.split("\n")[-1]
        return "the guest closed the connection" if status.code == 0 else f"the connection ended with exit code {status.code}"


def _split(message: bytes) -> tuple[int, memoryview]:
    if not message:
        return -1, memoryview(b"")
    return message[0], memoryview(message)[1:]
