"""Requests byte for byte, for what no client library sends."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.client import Api
from harness.waiting import PATIENCE


@dataclass(frozen=True)
class Answer:
    """``status`` is 0 when the connection ended without one."""

    status: int
    headers: dict[str, str]
    body: bytes

    def code(self) -> str:
        """Of a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        body: dict[str, Any] = json.loads(self.body)
        assert body["status"] == self.status
        return str(body["code"])


def dial(api: Api) -> socket.socket:
    address = urlsplit(api.url)
    assert address.hostname
    return socket.create_connection((address.hostname, address.port or 80), timeout=PATIENCE)


def exchange(api: Api, data: bytes, *, end: bool = False) -> Answer:
    """Send ``data`` on a connection of its own, and with ``end`` nothing more; the first answer. It is never a 500."""
    with dial(api) as connection:
        try:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused while it still came; the answer is there to be read
        answer = receive(connection, body=not data.startswith(b"HEAD "))
    assert answer.status != 500, answer
    return answer


def receive(connection: socket.socket, *, body: bool = True) -> Answer:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := _more(connection)):
            return Answer(0, {}, data)
        data += more
    head, _, content = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while body and len(content) < int(headers.get("content-length", 0)) and (more := _more(connection)):
        content += more
    return Answer(int(first.split()[1]), headers, content)


def _more(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


def request(
    api: Api, method: str, target: str | bytes, *headers: str | bytes, body: bytes = b"", key: bool = True, end: bool = False
) -> Answer:
    """A request to ``target`` with ``headers`` and, unless they say so themselves, a Host, the key and the body's length."""
    encoded = [header if isinstance(header, bytes) else header.encode("latin-1") for header in headers]
    said = {header.partition(b":")[0].lower() for header in encoded}
    if b"host" not in said:
        encoded.append(b"Host: localhost")
    if key and b"authorization" not in said:
        encoded.append(f"Authorization: Bearer {api.key}".encode())
    if not said & {b"content-length", b"transfer-encoding"}:
        encoded.append(b"Content-Length: %d" % len(body))
    line = b"%s %s HTTP/1.1" % (method.encode(), target if isinstance(target, bytes) else target.encode())
    return exchange(api, b"\r\n".join([line, *encoded, b"", body]), end=end)


UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==")
