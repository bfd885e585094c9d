"""File operations in a sandbox, one stream each."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable

from sandboxes.errors import FileError, PathRefused
from sandboxes.guest import protocol as wire
from sandboxes.guest.connection import Connection
from sandboxes.guest.flow import LARGE_WINDOW, Pieces, Waiters, Window
from sandboxes.guest.protocol import MAX_FRAME, U32, Entry, OperationEnd, Send, Stat, Violation

_FIRST_WINDOW = 256 << 10
MAX_ENTRIES = 100_000


class Operation:
    """A file operation: a frame there and an EXIT back. Subclasses add what flows between the two."""

    def __init__(self, connection: Connection, kind: Send, payload: bytes) -> None:
        """Sends the frame. Raises ``FileError`` when it is too long to be sent."""
        if len(payload) > MAX_FRAME:
            raise FileError("The path is too long.", errno.ENAMETOOLONG)
        self._connection = connection
        self._changed = Waiters()
        self._end: OperationEnd | None = None
        self._value = 0
        self._text = b""
        self._aborted = False
        self._number = connection.add(self)
        connection.send(kind, self._number, payload)

    async def done(self) -> None:
        """Wait for the end. Raises ``PathRefused``, ``FileError`` and ``GuestLost``."""
        while self._end is None:
            self._connection.check()
            await self._changed.wait()
        self._outcome()

    def abort(self) -> None:
        """Have the guest stop and undo what is unfinished. For WRITE, READ and LIST only."""
        if self._end is None and not self._aborted:
            self._aborted = True
            self._connection.send(Send.RELEASE, self._number)
            self._changed.wake()

    def _outcome(self) -> None:
        if self._end is OperationEnd.FAILED:
            raise FileError(wire.error_text(self._value, self._text), self._value)
        if self._end is OperationEnd.OUTSIDE:
            raise PathRefused("The path leads out of the working directory.")
        if self._end is OperationEnd.NOT_REGULAR:
            raise PathRefused("The path is not that of a regular file.")

    # connection.Stream

    def frame(self, kind: int, payload: memoryview) -> None:
        if kind == wire.EXIT:
            number, value, text = wire.decode_exit(payload)
            try:
                self._finish(OperationEnd(number), value, text)
            except ValueError:
                raise Violation(f"an EXIT of kind {number} for a file operation") from None
        elif kind == wire.ERROR:
            self._finish(OperationEnd.FAILED, errno.EPROTO, wire.decode_string(payload))
        else:
            raise Violation(f"an unexpected frame of type {kind:#x} for a file operation")

    def wake(self) -> None:
        self._changed.wake()

    def _finish(self, end: OperationEnd, value: int, text: bytes) -> None:
        if end is OperationEnd.FAILED and value not in range(1, 4096):
            raise Violation(f"a failure with errno {value}")
        if end is OperationEnd.DONE:
            self._got_result(text)
        self._end, self._value, self._text = end, value, text
        self._connection.remove(self._number)
        self._changed.wake()

    def _got_result(self, text: bytes) -> None:
        """Take what comes with success."""


class StatOperation(Operation):
    """An operation that answers with the state of a file: STAT, and WRITE."""

    stat: Stat

    def _got_result(self, text: bytes) -> None:
        self.stat = wire.decode_stat(memoryview(text))


class Transfer(Operation, ABC):
    """READ or LIST: output within a window."""

    def __init__(self, connection: Connection, kind: Send, path: bytes) -> None:
        self._window = Window(connection.budget, _FIRST_WINDOW, LARGE_WINDOW)
        try:
            super().__init__(connection, kind, U32.pack(self._window.first) + wire.string(path))
        except FileError:
            self._window.close()
            raise

    def frame(self, kind: int, payload: memoryview) -> None:
        if kind != wire.OUT:
            super().frame(kind, payload)
            return
        if not payload:
            raise Violation("empty output")
        self._window.received(len(payload))
        if not self._aborted:
            self._got(payload)

    def _finish(self, end: OperationEnd, value: int, text: bytes) -> None:
        super()._finish(end, value, text)
        if self._aborted:
            self._window.close()

    @abstractmethod
    def _got(self, payload: memoryview) -> None:
        """Take output, as it comes."""

    def _consumed(self, amount: int, *, drained: bool) -> None:
        credit = self._window.consumed(amount, drained=drained)
        if credit and self._end is None:
            self._connection.send(Send.CREDIT, self._number, U32.pack(credit))


class Listing(Transfer):
    """The entries of a directory."""

    def __init__(self, connection: Connection, path: bytes) -> None:
        self._entries: list[Entry] = []
        self._rest = b""  # of an entry that has not come whole
        self._too_many = False
        super().__init__(connection, Send.LIST, path)

    async def entries(self) -> list[Entry]:
        """Raises ``FileError`` with EOVERFLOW beyond ``MAX_ENTRIES``."""
        try:
            while self._end is None and not self._too_many:
                self._connection.check()
                await self._changed.wait()
            if self._too_many:
                raise FileError(f"The directory has more than {MAX_ENTRIES} entries.", errno.EOVERFLOW)
            self._outcome()
            return self._entries
        finally:
            self.abort()
            if self._end is not None:
                self._window.close()

    def _finish(self, end: OperationEnd, value: int, text: bytes) -> None:
        if end is OperationEnd.DONE and self._rest:
            raise Violation("a listing that ends within an entry")
        super()._finish(end, value, text)

    def _got(self, payload: memoryview) -> None:
        data = memoryview(self._rest + payload)
        entries, taken = wire.decode_entries(data)
        self._rest = bytes(data[taken:])
        if len(self._entries) + len(entries) > MAX_ENTRIES:
            self._too_many = True
            self._changed.wake()
            return
        self._entries += entries
        self._consumed(len(payload), drained=True)


#: Bytes that a reader hands on at once: frames one by one would cost whoever streams them a turn of the event loop each.
_MOST_AT_ONCE = 256 << 10


class FileReader(Transfer):
    """A file that the guest holds open; ``async for`` gives its bytes. Ends with the file, or at ``aclose``, which is always called."""

    stat: Stat

    def __init__(self, connection: Connection, path: bytes) -> None:
        self._pieces = Pieces()
        self._opened = False
        super().__init__(connection, Send.READ, path)

    async def opened(self) -> None:
        """Wait until the guest has opened the file. Raises ``PathRefused``, ``FileError`` and ``GuestLost``."""
        while not self._opened:
            if self._end is not None:
                self._outcome()
            self._connection.check()
            await self._changed.wait()

    def __aiter__(self) -> FileReader:
        return self

    async def __anext__(self) -> bytes:
        """Raises ``FileError`` or ``GuestLost`` after all that had come."""
        while True:
            if self._pieces.size:
                chunk = self._pieces.take(_MOST_AT_ONCE)
                self._consumed(len(chunk), drained=not self._pieces.size)
                return chunk
            if self._aborted:
                raise StopAsyncIteration
            if self._end is not None:
                self._window.close()
                self._outcome()
                raise StopAsyncIteration
            self._connection.check()
            await self._changed.wait()

    async def aclose(self) -> None:
        """Stop reading. Idempotent."""
        self.close()

    def close(self) -> None:
        self.abort()
        self._pieces.clear()
        if self._end is not None:
            self._window.close()

    def frame(self, kind: int, payload: memoryview) -> None:
        if kind == wire.OPENED:
            if self._opened:
                raise Violation("a file that opens twice")
            self.stat = wire.decode_stat(payload)
            self._opened = True
            self._changed.wake()
        else:
            super().frame(kind, payload)

    def _finish(self, end: OperationEnd, value: int, text: bytes) -> None:
        if end is OperationEnd.DONE and not self._opened:
            raise Violation("a file that was read and never opened")
        super()._finish(end, value, text)

    def _got(self, payload: memoryview) -> None:
        if not self._opened:
            raise Violation("bytes of a file that is not open")
        self._pieces.put(1, payload)
        self._changed.wake()


class Upload(StatOperation):
    """WRITE: the new content of a file."""

    def __init__(self, connection: Connection, path: bytes, mode: int) -> None:
        self._credit = connection.input_credit
        super().__init__(connection, Send.WRITE, U32.pack(mode) + wire.string(path))

    async def write(self, chunks: AsyncIterable[bytes]) -> Stat:
        """Send ``chunks`` and wait for the end. If it does not come to that, nothing is left in the sandbox."""
        try:
            async for chunk in chunks:
                await self._send(chunk)
                if self._end is not None:
                    break
            self._connection.check()
            if self._end is None:
                self._connection.send(Send.EOF, self._number)
            await self.done()
            return self.stat
        finally:
            self.abort()

    async def _send(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest and self._end is None:
            self._connection.check()
            size = min(len(rest), self._credit, MAX_FRAME)
            if not size:
                await self._changed.wait()
                continue
            self._credit -= size
            self._connection.send_input(self._number, rest[:size])
            rest = rest[size:]
            await self._connection.drain()

    def frame(self, kind: int, payload: memoryview) -> None:
        if kind == wire.CREDIT:
            (credit,) = wire.unpack(U32, payload)
            self._credit += credit
            self._changed.wake()
        else:
            super().frame(kind, payload)
