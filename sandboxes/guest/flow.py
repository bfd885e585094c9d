"""Flow control: who may hold how many bytes. Bounds the memory that a guest can make the control plane spend on one connection."""

from __future__ import annotations

import asyncio
from collections import deque

from sandboxes.guest.protocol import Violation

#: Bytes of credit given out on a connection, all streams together.
TOTAL = 8 << 20
#: What every stream has for certain, however many are open: room for 512 of them comes off the shared part.
FLOOR = 2 << 10
MAX_STREAMS = 512
_SHARED = TOTAL - MAX_STREAMS * FLOOR
#: What the window of a steady flow grows to. With half as much, a flow out of a cluster stops while credit is on its way.
LARGE_WINDOW = 4 << 20
#: That of a terminal. What is on its way still comes after a Ctrl-C.
TERMINAL_WINDOW = 2 << 20
#: What a window shrinks to when others need room.
_SMALL_WINDOW = 64 << 10
_SMALL_PIECE = 4 << 10
_PIECE = 64 << 10
_MANY_PIECES = 64


class Waiters:
    """Wakes whoever waits; each then looks for itself whether what it waits for has come. Cancelling a waiter is safe."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        try:
            await future
        finally:
            self._futures.remove(future)

    def wake(self) -> None:
        for future in self._futures:
            if not future.done():
                future.set_result(None)


class Budget:
    """The shared part of a connection's credit. Nobody gets more than a fraction of what is left, so it is never used up."""

    def __init__(self) -> None:
        self._free = _SHARED

    @property
    def scarce(self) -> bool:
        return self._free < _SHARED // 8

    def take(self, wanted: int, fraction: int) -> int:
        """At most ``wanted`` bytes, and at most one ``fraction``-th of what is left."""
        granted = min(wanted, self._free // fraction)
        self._free -= granted
        return granted

    def give_back(self, amount: int) -> None:
        self._free += amount


class Window:
    """One stream's credit for what the guest sends.

    It starts small, grows to ``limit`` for a reader that keeps up, and shrinks when others need room.

    At all times: credit that the guest holds + bytes received and not consumed + bytes consumed and not given back = size.
    """

    __slots__ = ("_budget", "_consumed", "_held", "_limit", "_open", "first", "size")

    def __init__(self, budget: Budget, first: int, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._open = True
        self.size = self.first = FLOOR + budget.take(first - FLOOR, 16)  #: the credit of the frame that opens the stream
        self._held = self.size
        self._consumed = 0

    @property
    def held(self) -> int:
        """Credit that the guest has not used."""
        return self._held

    def received(self, amount: int) -> None:
        if amount > self._held:
            raise Violation("more output than it had credit for")
        self._held -= amount

    def consumed(self, amount: int, *, drained: bool) -> int:
        """Note that ``amount`` bytes were read, all that had come if ``drained``. Returns the credit to give back now, often 0."""
        self._consumed += amount
        share = 2 if self.size == self._limit else 4  # each top-up wakes the guest; a small window cannot wait for half of it
        if not self._open or self._consumed * share < self.size:
            return 0
        credit, self._consumed = self._consumed, 0
        if self._budget.scarce:
            less = min(credit, max(self.size - _SMALL_WINDOW, 0))
            self._budget.give_back(less)
            self.size -= less
            credit -= less
        elif drained and self.size < self._limit:
            more = self._budget.take(min(self.size, self._limit - self.size), 4)
            self.size += more
            credit += more
        self._held += credit
        return credit

    def close(self) -> None:
        """The guest sends no more and nothing is left to read. Idempotent."""
        if self._open:
            self._open = False
            self._budget.give_back(self.size - FLOOR)


class Pieces:
    """Received output in order, in few pieces: a guest that sends single bytes must not cost an object for each."""

    __slots__ = ("_last", "_queue", "size")

    def __init__(self) -> None:
        self._queue: deque[tuple[int, bytearray | bytes]] = deque()
        self._last: dict[int, bytearray] = {}  # the piece of a descriptor that small ones are added to
        self.size = 0  #: bytes

    def put(self, fd: int, data: memoryview) -> None:
        size = len(data)
        self.size += size
        last = self._last.get(fd)
        if last is not None and len(last) + size <= _PIECE and (self._queue[-1][1] is last or len(self._queue) > _MANY_PIECES):
            last += data
        elif size <= _SMALL_PIECE:
            self._last[fd] = piece = bytearray(data)
            self._queue.append((fd, piece))
        else:
            self._last.pop(fd, None)
            self._queue.append((fd, bytes(data)))

    def get(self) -> tuple[int, bytes] | None:
        if not self._queue:
            return None
        fd, piece = self._queue.popleft()
        self.size -= len(piece)
        if self._last.get(fd) is piece:
            del self._last[fd]
        return fd, bytes(piece)

    def take(self, most: int) -> bytes:
        """Of one descriptor: all that is there, in whole pieces until it is ``most`` bytes."""
        parts: list[bytes] = []
        size = 0
        while size < most and (piece := self.get()) is not None:
            parts.append(piece[1])
            size += len(piece[1])
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def clear(self) -> None:
        self._queue.clear()
        self._last.clear()
        self.size = 0
