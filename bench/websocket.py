"""A terminal's client that costs next to nothing, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from time import perf_counter

from bench.client import Client, Refused

_BINARY = 0x82
_PING, _PONG, _CLOSE = 0x89, 0x8A, 0x88
_ECHO = b"exec sh -c 'stty raw -echo; printf \"<%s>\" echo; exec cat'\n"


class Terminal:
    """One open terminal. At most one task uses it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(4)
        self._taking = asyncio.create_task(self._take())

    @classmethod
    async def open(cls, client: Client, port: int, lease: str) -> Terminal:
        """Mint a ticket through ``client`` and open a terminal with it. Nothing buffers more than a few frames at this side."""
        minted = await client.call("POST", f"/v1/sandboxes/{lease}/terminal/ticket")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 << 10)
        key = base64.b64encode(os.urandom(16)).decode()
        path = f"/v1/sandboxes/{lease}/terminal/ws?ticket={minted['ticket']}"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in answer[:20]:
            raise Refused(f"{path} was answered {answer[:200]!r}")
        return cls(reader, writer)

    def close(self) -> None:
        self._taking.cancel()
        self._writer.close()

    def type(self, data: bytes) -> None:
        self._send(_BINARY, data)

    async def receive(self) -> bytes:
        """The next output."""
        frame = await self._frames.get()
        if not frame:
            raise Refused("a terminal was closed")
        return frame

    async def _take(self) -> None:
        """Answer pings also while nobody wants output."""
        try:
            while True:
                await self._frames.put(await self._receive())
        except (OSError, EOFError):
            await self._frames.put(b"")

    async def _receive(self) -> bytes:
        while True:
            opcode, length = await self._reader.readexactly(2)
            if length == 126:
                (length,) = struct.unpack("!H", await self._reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
            payload = await self._reader.readexactly(length)
            if opcode == _BINARY:
                return payload
            if opcode == _PING:
                self._send(_PONG, payload)
            elif opcode == _CLOSE:
                raise EOFError(payload)

    async def run(self, line: bytes, mark: bytes) -> None:
        """Type ``line`` and read until ``mark`` was shown."""
        self.type(line)
        seen = b""
        while mark not in seen:
            seen = seen[-len(mark) :] + await self.receive()

    async def become_echo(self) -> Terminal:
        """Replace the shell by a program that shows what is typed, and nothing else."""
        await self.run(_ECHO, b"<echo>")
        return self

    async def echo(self) -> float:
        """Seconds from a keystroke until it is shown."""
        began = perf_counter()
        self.type(b"x")
        await self.receive()
        return perf_counter() - began

    def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
        self._writer.write(bytes([opcode]) + length + bytes(4) + payload)  # the mask is zero
