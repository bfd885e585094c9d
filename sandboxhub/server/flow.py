"""Back-pressure: what connects Twisted's pausing and resuming with tasks that await."""

# mypy: disable-error-code="no-untyped-call"

import asyncio
import fcntl
import select
import struct
import termios
import time
from typing import Any, Protocol

from twisted.internet.interfaces import ISSLTransport

from sandboxhub.server.types import Message

READ_HIGH = 256 * 1024  # bytes that wait for the application before the client is made to wait
READ_LOW = 64 * 1024
MESSAGE_OVERHEAD = 256  # what an empty message is counted for, so that a flood of them is bounded too


class Gate:
    """Twisted's push producer as something to await: shut while the transport has more than it can hold."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pauseProducing(self) -> None:
        self._open.clear()

    def resumeProducing(self) -> None:
        self._open.set()

    stopProducing = resumeProducing

    @property
    def shut(self) -> bool:
        return not self._open.is_set()

    async def wait(self) -> None:
        """Return when the transport has handed everything to the kernel, or the connection is gone."""
        await self._open.wait()


class Reader(Protocol):
    """A connection whose reading can be held."""

    def hold_reading(self) -> None: ...
    def release_reading(self) -> None: ...


class Inbox:
    """Messages for the application. Holds the connection's reading while more than READ_HIGH bytes wait."""

    def __init__(self, reader: Reader) -> None:
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._reader = reader
        self._size = 0
        self._holding = False

    @property
    def empty(self) -> bool:
        """Whether the application has taken everything."""
        return self._queue.empty()

    @staticmethod
    def _weight(message: Message) -> int:
        return MESSAGE_OVERHEAD + len(message.get("bytes") or message.get("text") or b"")

    def put(self, message: Message) -> None:
        self._queue.put_nowait(message)
        self._size += self._weight(message)
        if self._size > READ_HIGH and not self._holding:
            self._holding = True
            self._reader.hold_reading()

    async def get(self) -> Message:
        message = await self._queue.get()
        self._size -= self._weight(message)
        if self._holding and self._size < READ_LOW:
            self._holding = False
            self._reader.release_reading()
        return message


class Stall:
    """Notices a client that takes nothing: output waits, and none of it moves."""

    def __init__(self) -> None:
        self._unsent = 0
        self._since = time.monotonic()

    def seconds(self, transport: Any) -> float:
        """How long the same number of bytes has been waiting; 0 while something moves or nothing waits. Call it every few seconds."""
        waiting = unsent(transport)
        if waiting == 0 or waiting != self._unsent:
            self._unsent, self._since = waiting, time.monotonic()
        return time.monotonic() - self._since


def unsent(transport: Any) -> int:
    """Bytes that the peer has not acknowledged: in Twisted's buffer and in the kernel's (0 where the transport can't tell)."""
    transport = getattr(transport, "transport", transport)  # beneath TLS
    buffered = len(getattr(transport, "dataBuffer", b"")) - getattr(transport, "offset", 0) + getattr(transport, "_tempDataLen", 0)
    if (descriptor := descriptor_of(transport)) is None:
        return int(buffered)
    try:
        queued = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))[0]
    except OSError:  # not a socket that counts, or just closed
        queued = 0
    return int(buffered + queued)


def peer_gone(transport: Any) -> bool:
    """Whether the peer has closed its side: invisible to a connection that does not read."""
    if (descriptor := descriptor_of(transport)) is None:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))


def descriptor_of(transport: Any) -> int | None:
    """The socket's file descriptor, None when it is closed."""
    descriptor = int(transport.fileno())
    return descriptor if descriptor >= 0 else None


def half_close(transport: Any) -> None:
    """Send what waits, then end our side only: a full close with input unread would reset the connection and lose what was sent."""
    transport.unregisterProducer()  # a paused producer would keep Twisted from ending the stream
    transport.resumeProducing()
    if ISSLTransport.providedBy(transport):
        transport.loseConnection()  # TLS has no half-close
    else:
        transport.loseWriteConnection()
