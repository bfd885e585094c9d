"""An HTTP client that costs next to nothing, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

_CHUNK = 256 << 10


class Refused(Exception):
    """The server answered something else than a success."""


class Client:
    """One keep-alive connection, one request at a time."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = f"Host: localhost\r\nAuthorization: Bearer {key}\r\n"

    async def open(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        return self

    def close(self) -> None:
        self._writer.close()

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """A request and its answer in JSON; None for an empty one."""
        content = b"" if body is None else json.dumps(body).encode()
        self._send(method, path, len(content))
        self._writer.write(content)
        answer = await self._reader.readexactly(await self._answer(method, path))
        return json.loads(answer) if answer else None

    async def upload(self, path: str, size: int) -> None:
        """POST ``size`` zeros."""
        self._send("POST", path, size)
        chunk, left = bytes(_CHUNK), size
        while left:
            piece = chunk[:left]
            self._writer.write(piece)
            left -= len(piece)
            await self._writer.drain()
        await self._reader.readexactly(await self._answer("POST", path))

    async def download(self, path: str) -> int:
        """GET; the number of bytes that came."""
        self._send("GET", path, 0)
        size = left = await self._answer("GET", path)
        while left:
            piece = await self._reader.read(min(left, _CHUNK))
            if not piece:
                raise Refused(f"GET {path} ended {left} bytes early")
            left -= len(piece)
        return size

    def _send(self, method: str, path: str, length: int) -> None:
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {length}\r\n\r\n".encode())

    async def _answer(self, method: str, path: str) -> int:
        """The length of the body that follows."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, length = int(head.split(" ", 2)[1]), 0
        for line in head.split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        if status >= 300:
            raise Refused(f"{method} {path} was answered {status}: {(await self._reader.readexactly(length)).decode(errors='replace')}")
        return length
