"""A ``ByteStream`` over a connected socket: the host's end of a guest's stdin and stdout."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

from sandboxes.engine.base import Receiver

#: One receive buffer for all streams of a thread, because a loop fills and empties it within one call. It stays in the
#: processor's cache, and a thousand idle connections hold no memory for reading.
_RECEIVE_SIZE = 512 << 10
_HIGH_WATER = 256 << 10
_LOW_WATER = 64 << 10
_SEND_BUFFER = 1 << 20  # the kernel caps it for the unprivileged


class _Buffer(threading.local):
    def __init__(self) -> None:
        self.view = memoryview(bytearray(_RECEIVE_SIZE))


_buffer = _Buffer()


class SocketStream(asyncio.BufferedProtocol):
    """Implements ``sandboxes.engine.base.ByteStream``. Made by ``open_socket_stream``."""

    def __init__(self, on_close: Callable[[], None] | None) -> None:
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._lost: str | None = None
        self._closing = False
        self._writable = asyncio.Event()
        self._writable.set()

    # ByteStream

    def attach(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise RuntimeError("the stream has a receiver already")
        self._receiver = receiver
        if self._lost is not None:
            asyncio.get_running_loop().call_soon(receiver.stream_lost, self._lost)
        elif self._transport is not None:
            self._transport.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._transport is None or self._closing:
            return
        # From Python 3.12 on, transports keep a view of what they could not send: nobody may change it under them.
        if not isinstance(data, bytes) and not (isinstance(data, memoryview) and isinstance(data.obj, bytes)):
            data = bytes(data)
        self._transport.write(data)

    async def drain(self) -> None:
        await self._writable.wait()

    def close(self) -> None:
        """Drop what is still queued: a guest that does not read must not keep the socket open."""
        self._closing = True
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()

    def disown(self) -> None:
        """Forget ``on_close``."""
        self._on_close = None

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        transport.set_write_buffer_limits(high=_HIGH_WATER, low=_LOW_WATER)
        transport.pause_reading()  # until `attach`: what arrives before waits in the kernel
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return _buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        if self._receiver is not None and not self._closing:
            self._receiver.data_received(_buffer.view[:nbytes])

    def eof_received(self) -> None:
        """Let the transport close: one direction alone is of no use."""

    def pause_writing(self) -> None:
        if not self._closing:
            self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing:
            self._lost = "the connection was closed"
        elif exc is None:
            self._lost = "the guest closed the connection"
        else:
            self._lost = f"the connection to the guest broke: {exc}"
        self._closing = True
        self._writable.set()
        if self._receiver is not None:
            self._receiver.stream_lost(self._lost)
        if self._on_close is not None:
            asyncio.get_running_loop().call_soon(self._on_close)  # the transport closes the socket when this returns


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Our end, and the one that becomes a guest's stdin and stdout: what is written to it waits in its own buffer."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    return ours, theirs


async def open_socket_stream(sock: socket.socket, *, on_close: Callable[[], None] | None = None) -> SocketStream:
    """Make a stream of ``sock``, a connected stream socket that the stream owns from now on, also when this fails.

    ``on_close`` is called once, after the socket has been closed; not when this raises. The socket must not be closed but through
    the stream: its number would stay registered with the event loop, and the next socket that gets it would hear nothing.
    """
    stream = SocketStream(on_close)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        await asyncio.get_running_loop().create_connection(lambda: stream, sock=sock)
    except BaseException:
        stream.disown()
        sock.close()
        raise
    return stream
