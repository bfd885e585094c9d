"""Byte streams to guests: the one that a sandbox was started with, and those that the runtime's exec makes later."""

from __future__ import annotations

import asyncio
import os
import socket

from sandboxes.engine.base import ByteStream
from sandboxes.engine.oci import process
from sandboxes.engine.oci.runtime import RuntimeProgram, last_error
from sandboxes.errors import EngineError
from sandboxes.guest.transport import SocketStream, open_socket_stream, socket_pair

_ANSWER_TIMEOUT = 30.0  # seconds; a sandbox that starts among many others on a busy host takes its time


class Streams:
    def __init__(self) -> None:
        self._first: dict[str, socket.socket] = {}
        self._open: set[SocketStream] = set()

    def keep(self, name: str, sock: socket.socket) -> None:
        """Hold the first connection of a sandbox until somebody wants one."""
        self.drop(name)
        self._first[name] = sock

    def drop(self, name: str) -> None:
        sock = self._first.pop(name, None)
        if sock is not None:
            sock.close()

    async def connect(self, name: str, runtime: RuntimeProgram) -> ByteStream:
        """Raises ``EngineError`` when the guest says nothing."""
        sock = self._first.pop(name, None)
        if sock is not None:
            return await self._open_stream(sock, None)
        return await self._exec(name, runtime)

    def close(self) -> None:
        for name in list(self._first):
            self.drop(name)
        for stream in list(self._open):
            stream.close()

    async def _exec(self, name: str, runtime: RuntimeProgram) -> ByteStream:
        ours, theirs = socket_pair()
        log = os.memfd_create("exec", os.MFD_CLOEXEC)
        try:
            with theirs:
                client = process.spawn(runtime.connect_command(name), stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=log)
            try:
                return await self._open_stream(ours, client)
            except EngineError as error:
                said = process.read_output(log)
                raise EngineError(f"{error.detail} {last_error(said)}") if said.strip() else error from None
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(log)

    async def _open_stream(self, sock: socket.socket, client: process.Child | None) -> ByteStream:
        """Takes both over, also when it fails."""
        try:
            sock.setblocking(False)
            await _answered(sock)
            stream = await open_socket_stream(sock, on_close=lambda: self._closed(stream, client))
        except BaseException:
            sock.close()
            _stop(client)
            raise
        self._open.add(stream)
        return stream

    def _closed(self, stream: SocketStream, client: process.Child | None) -> None:
        self._open.discard(stream)
        _stop(client)


def _stop(client: process.Child | None) -> None:
    """End the runtime's exec; what it ran inside ends with the stream."""
    if client is not None:
        client.kill()


async def _answered(sock: socket.socket) -> None:
    """Wait for the guest's first bytes, which stay in the socket. The guest always speaks first."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            await ready.wait()
        spoke = bool(sock.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        raise EngineError("The guest does not answer.") from None
    except OSError:
        spoke = False
    finally:
        loop.remove_reader(sock)
    if not spoke:
        raise EngineError("The guest closed the connection before it said hello.")
