"""The client of a guest: one connection, as all other parts use it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterable
from dataclasses import replace

from sandboxes.engine.base import ByteStream
from sandboxes.errors import GuestLost, GuestTooOld
from sandboxes.guest import protocol as wire
from sandboxes.guest.connection import Connection
from sandboxes.guest.files import FileReader, Listing, Operation, StatOperation, Upload
from sandboxes.guest.process import CannotStart, CannotStartKind, Output, Process
from sandboxes.guest.protocol import U32, Command, Entry, Exit, ExitKind, Hello, Killed, Send, Stat

__all__ = [
    "CannotStart",
    "CannotStartKind",
    "Command",
    "Entry",
    "Exit",
    "ExitKind",
    "FileReader",
    "Guest",
    "Hello",
    "Killed",
    "Output",
    "Process",
    "Stat",
]


class Guest:
    """One connection to a guest; lives on the event loop that opened it. Made by ``open``.

    A guest is somebody else's code: whatever it sends, memory stays bounded, and nothing but the errors named here leaves this class.
    File paths are bytes, relative to the workdir or absolute and beneath it. File calls raise ``PathRefused`` for a path that leads out
    or to something other than a regular file or directory, ``FileError`` with the errno, and ``GuestLost``.
    Every call may be cancelled.
    """

    def __init__(self, connection: Connection, hello: Hello) -> None:
        self.hello = hello
        #: Done, with the reason, once the connection has ended; never an exception. Wait for it with ``asyncio.wait`` or
        #: ``asyncio.shield``: a plain await that is cancelled would cancel it for everyone.
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connection = connection
        connection.on_end = self._ended

    @classmethod
    async def open(cls, stream: ByteStream, *, timeout: float = 5.0) -> Guest:
        """Greet the guest at the other end of ``stream``, within ``timeout`` seconds.

        Raises ``GuestLost`` or ``GuestTooOld``; the stream is closed then, and when this is cancelled.
        """
        connection = Connection(stream)
        try:
            stream.attach(connection)
            async with asyncio.timeout(timeout):
                while (hello := connection.hello) is None:
                    connection.check()
                    await connection.greeted.wait()
            if not hello.lowest <= wire.VERSION <= hello.highest:
                raise GuestTooOld(f"The guest speaks the protocol from {hello.lowest} to {hello.highest}, not {wire.VERSION}.")
            connection.check()
        except TimeoutError:
            connection.end("the guest did not say hello")
            raise GuestLost("the guest did not say hello") from None
        except BaseException:
            connection.end("the guest was not opened")
            raise
        connection.send(Send.HELLO, 0, wire.U16.pack(wire.VERSION))
        return cls(connection, Hello(wire.VERSION, hello.boot_id, hello.pid, hello.uid))

    async def start(self, command: Command) -> Process:
        """Returns once the command runs. Raises ``CannotStart`` and ``GuestLost``. Cancelled, the command is killed or never runs."""
        process = await self.launch(command)
        try:
            await process.started()
        except asyncio.CancelledError:
            process.abandon()
            raise
        return process

    async def launch(self, command: Command) -> Process:
        """As ``start``, without waiting for the guest: ``Process.started`` tells. Waits only while too many streams are open."""
        await self._connection.slot()
        return Process(self._connection, command)

    async def terminal(self, command: Command, *, rows: int, cols: int) -> Process:
        """Start a command on a terminal of its own, 1 to 1000 rows and columns. ``stop_all`` leaves it alone. As ``start`` otherwise."""
        return await self.start(replace(command, pty=(rows, cols)))

    async def launch_lasting(self, command: Command) -> Exit:
        """Run a command whose descendants outlive this connection and ``stop_all``, to the end of its main process.

        It reads and writes nothing. Raises ``CannotStart`` and ``GuestLost``.
        """
        process = await self.start(replace(command, stdin=False, lasting=True))
        try:
            return await process.wait()
        finally:
            process.release()

    async def stat(self, path: bytes) -> Stat:
        await self._connection.slot()
        operation = StatOperation(self._connection, Send.STAT, wire.string(path))
        await operation.done()
        return operation.stat

    async def list(self, path: bytes) -> list[Entry]:
        """The entries of a directory, unsorted. Raises ``FileError`` with EOVERFLOW when there are more than 100 000."""
        await self._connection.slot()
        return await Listing(self._connection, path).entries()

    async def read(self, path: bytes) -> FileReader:
        """Returns once the guest has opened the file. The caller has to ``aclose`` what it gets."""
        await self._connection.slot()
        reader = FileReader(self._connection, path)
        try:
            await reader.opened()
        except BaseException:
            reader.close()
            raise
        return reader

    async def write(self, path: bytes, chunks: AsyncIterable[bytes], *, mode: int = 0o644) -> Stat:
        """Replace a file atomically, or make it with ``mode``, at the pace of the guest. Missing parent directories are made.

        Cancelled, or when ``chunks`` raises, it leaves nothing behind.
        """
        await self._connection.slot()
        return await Upload(self._connection, path, mode).write(chunks)

    async def mkdir(self, path: bytes, mode: int = 0o755) -> None:
        """Make a directory and its parents; one that exists is a success."""
        await self._operation(Send.MKDIR, U32.pack(mode) + wire.string(path))

    async def remove(self, path: bytes, recursive: bool = False) -> None:
        await self._operation(Send.REMOVE, wire.U8.pack(recursive) + wire.string(path))

    async def rename(self, old: bytes, new: bytes) -> None:
        await self._operation(Send.RENAME, wire.string(old) + wire.string(new))

    async def stop_all(self) -> int:
        """SIGKILL every command of every connection to this guest, subtree and all. Returns how many were running. Raises ``GuestLost``."""
        number = self._connection.request_number()
        return await self._connection.request(Send.STOPALL, wire.GOT_STOPPED, number, U32.pack(number))

    async def ping(self) -> None:
        """Returns on the answer, however long it takes. Raises ``GuestLost``."""
        number = secrets.randbits(64)  # an answer cannot be sent ahead
        await self._connection.request(Send.PING, wire.PONG, number, wire.U64.pack(number))

    def close(self) -> None:
        """End the connection, and with it every command that was started on it. Idempotent."""
        self._connection.end("the connection was closed")

    def end(self, reason: str) -> None:
        """As ``close``, telling everyone who waits a ``reason``."""
        self._connection.end(reason)

    async def _operation(self, kind: Send, payload: bytes) -> None:
        await self._connection.slot()
        await Operation(self._connection, kind, payload).done()

    def _ended(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
