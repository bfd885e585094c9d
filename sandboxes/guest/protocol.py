"""The wire of ``docs/guest-protocol.md``: frames, their payloads, and the parser of what a guest sends. Knows no event loop."""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from stat import S_ISDIR, S_ISREG
from typing import Any

VERSION = 1
MAX_FRAME = 256 << 10  #: bytes of payload, but for START, OUT and ERR
MAX_OUTPUT = 512 << 10  #: of OUT and ERR
MAX_START = 1 << 20

HEADER = struct.Struct(">IBI")
U8 = struct.Struct(">B")
U16 = struct.Struct(">H")
U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")
KILL = struct.Struct(">IBB")
KILLED = struct.Struct(">IIII")
STOPPED = struct.Struct(">II")
STAT = struct.Struct(">IQQ")
_START = struct.Struct(">BHHI")
_EXIT = struct.Struct(">Bi")
_ENTRY = struct.Struct(">IQQH")
_HELLO = struct.Struct(">HHI")
_HELLO_TAIL = struct.Struct(">IIII")
_START_PTY, _START_STDIN, _START_LASTING = 1, 4, 8
SIZE = struct.Struct(">HH")


class Send(enum.IntEnum):
    """Types of the frames that a client sends."""

    HELLO = 0x01
    START = 0x02
    DATA = 0x03
    EOF = 0x04
    CREDIT = 0x05
    RESIZE = 0x06
    KILL = 0x07
    STAT = 0x10
    LIST = 0x11
    READ = 0x12
    WRITE = 0x13
    MKDIR = 0x14
    REMOVE = 0x15
    RENAME = 0x16
    PING = 0x20
    RELEASE = 0x21
    STOPALL = 0x22


# Types of the frames that a guest sends: plain integers, because every frame is compared with them.
HELLO, STARTED, OUT, ERR, OUTEOF, CREDIT, EXIT, GOT_KILLED, OPENED, TREE, ERROR = (
    0x81,
    0x82,
    0x83,
    0x84,
    0x85,
    0x86,
    0x87,
    0x88,
    0x8A,
    0x8B,
    0x8F,
)
PONG, GOT_STOPPED = 0xA0, 0xA2


class Violation(Exception):
    """The guest broke the protocol; the text says how."""


@dataclass(frozen=True)
class Hello:
    version: int
    boot_id: str  #: random for each guest process
    pid: int
    uid: int


@dataclass(frozen=True)
class HelloFrame:
    """All of what a guest says first."""

    lowest: int
    highest: int
    boot_id: str
    pid: int
    uid: int
    max_streams: int
    input_credit: int


@dataclass(frozen=True)
class Command:
    """``argv`` is not empty; its first item is looked up in the PATH of ``env``. ``cwd`` is absolute or relative to the workdir."""

    argv: Sequence[bytes]
    cwd: bytes
    env: Mapping[bytes, bytes] = field(default_factory=dict)
    stdin: bool = False  #: a pipe; otherwise /dev/null
    pty: tuple[int, int] | None = None  #: rows and columns: all three descriptors are a terminal of this size
    lasting: bool = False  #: outlives the connection; all three descriptors are /dev/null


class ExitKind(enum.IntEnum):
    """How a command ended. From ``NOT_FOUND`` to ``OTHER`` it never ran."""

    EXITED = 0
    SIGNALED = 1
    NOT_FOUND = 2
    NOT_EXECUTABLE = 3
    BAD_CWD = 4
    LIMIT = 5
    OTHER = 6
    STOPPED = 10

    @property
    def never_ran(self) -> bool:
        return ExitKind.NOT_FOUND <= self <= ExitKind.OTHER


@dataclass(frozen=True)
class Exit:
    kind: ExitKind
    value: int  #: exit code, signal or errno, by ``kind``
    text: str


class OperationEnd(enum.IntEnum):
    """How a file operation ended."""

    DONE = 0
    FAILED = 7
    OUTSIDE = 8
    NOT_REGULAR = 9


@dataclass(frozen=True)
class Killed:
    rounds: int
    killed: int
    left: int  #: processes that were still there when the guest gave up; normally 0


@dataclass(frozen=True)
class Stat:
    mode: int  #: type and permission bits, as in ``os.stat``
    size: int  #: bytes
    mtime_ns: int

    @property
    def is_dir(self) -> bool:
        return S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return S_ISREG(self.mode)


@dataclass(frozen=True)
class Entry:
    name: bytes
    stat: Stat


def string(value: bytes) -> bytes:
    return U32.pack(len(value)) + value


def strings(values: Sequence[bytes]) -> bytes:
    return U32.pack(len(values)) + b"".join(map(string, values))


def start_payload(command: Command, credit: int) -> bytes:
    """May be longer than ``MAX_START``: the caller looks."""
    environment = [key + b"=" + value for key, value in command.env.items()]
    rows, cols = command.pty or (0, 0)
    flags = (_START_PTY if command.pty else _START_STDIN if command.stdin else 0) | (_START_LASTING if command.lasting else 0)
    fixed = _START.pack(flags, rows, cols, credit)
    return fixed + string(b"") + string(command.cwd) + strings(command.argv) + strings(environment)


def unpack(layout: struct.Struct, payload: memoryview) -> tuple[Any, ...]:
    """The fields of a payload that has exactly this layout. Raises ``Violation``."""
    if len(payload) != layout.size:
        raise Violation(f"a payload of {len(payload)} bytes where {layout.size} belong")
    return layout.unpack(payload)


def _take_string(payload: memoryview, offset: int) -> tuple[bytes, int]:
    if len(payload) - offset < U32.size:
        raise Violation("a payload ends within a string")
    (length,) = U32.unpack_from(payload, offset)
    offset += U32.size
    if length > len(payload) - offset:
        raise Violation("a string reaches beyond its payload")
    return bytes(payload[offset : offset + length]), offset + length


def decode_hello(payload: memoryview) -> HelloFrame:
    if len(payload) < _HELLO.size:
        raise Violation("a short HELLO")
    lowest, highest, _ = _HELLO.unpack_from(payload)
    boot_id, offset = _take_string(payload, _HELLO.size - U32.size)
    pid, uid, streams, credit = unpack(_HELLO_TAIL, payload[offset:])
    if len(boot_id) != 32 or boot_id.strip(b"0123456789abcdef"):
        raise Violation("a boot id that is not 32 hexadecimal digits")
    if streams < 1 or lowest > highest:
        raise Violation("a HELLO that makes no sense")
    return HelloFrame(lowest, highest, boot_id.decode("ascii"), pid, uid, streams, credit)


def decode_exit(payload: memoryview) -> tuple[int, int, bytes]:
    """Kind, value and text."""
    if len(payload) < _EXIT.size:
        raise Violation("a short EXIT")
    kind, value = _EXIT.unpack_from(payload)
    return kind, value, decode_string(payload[_EXIT.size :])


def decode_string(payload: memoryview) -> bytes:
    value, end = _take_string(payload, 0)
    if end != len(payload):
        raise Violation("bytes after the end of a payload")
    return value


def decode_stat(payload: memoryview) -> Stat:
    return Stat(*unpack(STAT, payload))


def decode_entries(payload: memoryview) -> tuple[list[Entry], int]:
    """The entries of a part of a listing, and how many bytes they take: the last one may be incomplete.

    A name that could lead out of its directory is a ``Violation``.
    """
    entries: list[Entry] = []
    offset = 0
    while len(payload) - offset >= _ENTRY.size:
        mode, size, mtime, length = _ENTRY.unpack_from(payload, offset)
        begin = offset + _ENTRY.size
        if length > len(payload) - begin:
            break
        name = bytes(payload[begin : begin + length])
        if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
            raise Violation("a listing with a name that no file can have")
        entries.append(Entry(name, Stat(mode, size, mtime)))
        offset = begin + length
    return entries, offset


def clean_text(text: bytes) -> str:
    """A guest's words fit to be shown: one line, at most 500 characters."""
    return "".join(c if c.isprintable() else " " for c in text[:2000].decode("utf-8", "replace"))[:500].strip()


def error_text(errno: int, text: bytes) -> str:
    """The guest's reason, or the system's name for ``errno`` when it gave none."""
    return clean_text(text) or os.strerror(errno)


_OUTPUT = (OUT, ERR)


def _check_length(kind: int, length: int) -> None:
    if length > (MAX_OUTPUT if kind in _OUTPUT else MAX_FRAME):
        raise Violation(f"a frame of {length} bytes")


class Parser:
    """Cuts a byte stream into frames, whatever way it is split.

    Holds at most one incomplete frame, and none of output (OUT, ERR): what has come of one counts as a frame, and ``more`` gets the
    rest. Payloads are valid only during the call.
    """

    def __init__(self, deliver: Callable[[int, int, memoryview], None], more: Callable[[int, int, memoryview], None]) -> None:
        self._deliver = deliver  # type, stream, payload
        self._more = more
        self._partial = bytearray()
        self._following = 0  # bytes of the last frame of output that are still to come
        self._output = (0, 0)  # its type and stream

    def feed(self, data: memoryview) -> None:
        """Deliver what is there. Raises ``Violation``, also what the delivery raises; the parser is of no use afterwards."""
        start, end = 0, len(data)
        if self._following and end:
            start = min(self._following, end)
            self._following -= start
            self._more(*self._output, data[:start])
        elif self._partial:
            start = self._complete(data)
        while end - start >= 9:
            length, kind, stream = HEADER.unpack_from(data, start)
            if length > MAX_FRAME:
                _check_length(kind, length)
            body = start + 9
            if end - body < length:
                if kind in _OUTPUT and end > body:
                    self._begin_output(kind, stream, data[body:], length)
                    return
                break
            start = body + length
            self._deliver(kind, stream, data[body:start])
        if start < end:
            self._partial += data[start:]

    def _complete(self, data: memoryview) -> int:
        """Complete the frame that began earlier, as far as ``data`` goes. Returns how much of ``data`` it took."""
        partial, taken = self._partial, 0
        if len(partial) < 9:
            taken = min(9 - len(partial), len(data))
            partial += data[:taken]
            if len(partial) < 9:
                return taken
        length, kind, stream = HEADER.unpack_from(partial)
        if length > MAX_FRAME:
            _check_length(kind, length)
        missing: int = min(9 + length - len(partial), len(data) - taken)
        if kind in _OUTPUT and missing:
            self._partial = bytearray()
            self._begin_output(kind, stream, data[taken : taken + missing], length)
            return taken + missing
        partial += data[taken : taken + missing]
        if len(partial) == 9 + length:
            self._partial = bytearray()
            self._deliver(kind, stream, memoryview(partial)[9:])
        return taken + missing

    def _begin_output(self, kind: int, stream: int, payload: memoryview, length: int) -> None:
        self._following, self._output = length - len(payload), (kind, stream)
        self._deliver(kind, stream, payload)
