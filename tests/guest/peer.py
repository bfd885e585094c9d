"""The guest's half of a connection, played frame by frame: faults that the real guest does not have."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass

from sandboxes.guest import Command, Guest
from sandboxes.guest import protocol as wire
from sandboxes.guest.protocol import Send
from sandboxes.guest.transport import open_socket_stream

BOOT_ID = b"0123456789abcdef" * 2
TRUE = Command([b"true"], b"/", {b"PATH": b"/usr/bin:/bin"})
WITH_STDIN = Command([b"cat"], b"/", stdin=True)
FILE_STAT = wire.STAT.pack(0o100644, 5, 7)


def hello(lowest: int = 1, highest: int = 1, *, boot_id: bytes = BOOT_ID, streams: int = 512, credit: int = 4096) -> bytes:
    return struct.pack(">HH", lowest, highest) + wire.string(boot_id) + struct.pack(">IIII", 1, 1000, streams, credit)


def exit_payload(kind: int = 0, value: int = 0, text: bytes = b"") -> bytes:
    return struct.pack(">Bi", kind, value) + wire.string(text)


def entry(name: bytes, mode: int = 0o100644, size: int = 5) -> bytes:
    return struct.pack(">IQQH", mode, size, 7, len(name)) + name


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    return wire.HEADER.pack(len(payload), kind, stream) + payload


@dataclass(frozen=True)
class Frame:
    kind: int
    stream: int
    payload: bytes

    @property
    def number(self) -> int:
        """The u32 that the payload begins with."""
        return int.from_bytes(self.payload[:4], "big")


def first_credit(start: Frame) -> int:
    return int.from_bytes(start.payload[5:9], "big")


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def pair(cls) -> tuple[Peer, socket.socket]:
        ours, theirs = socket.socketpair()
        return cls(*await asyncio.open_connection(sock=ours)), theirs

    def send(self, kind: int, stream: int, payload: bytes = b"") -> None:
        self._writer.write(frame(kind, stream, payload))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def receive(self) -> Frame:
        length, kind, stream = wire.HEADER.unpack(await self._reader.readexactly(9))
        return Frame(kind, stream, await self._reader.readexactly(length))

    async def expect(self, kind: Send) -> Frame:
        received = await self.receive()
        assert received.kind == kind, f"{Send(received.kind)!r} instead of {kind!r}"
        return received

    async def ended(self) -> None:
        """Wait until the client has closed."""
        try:
            while await self._reader.read(1 << 16):
                pass
        except ConnectionError:  # also while the peer still wrote
            return

    async def started(self, pid: int = 7) -> Frame:
        """Take a START and answer it."""
        start = await self.expect(Send.START)
        self.send(wire.STARTED, start.stream, struct.pack(">I", pid))
        return start

    def close(self) -> None:
        self._writer.close()


async def connect(**hello_arguments: int) -> tuple[Guest, Peer]:
    """A client that has greeted the peer."""
    peer, theirs = await Peer.pair()
    peer.send(wire.HELLO, 0, hello(**hello_arguments))
    guest = await Guest.open(await open_socket_stream(theirs))
    await peer.expect(Send.HELLO)
    return guest, peer
