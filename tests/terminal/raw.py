"""A WebSocket client that may do what no well-behaved one does."""

from __future__ import annotations

import socket
import struct
from urllib.parse import urlsplit

from harness.waiting import PATIENCE

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def handshake(url: str) -> tuple[socket.socket, int, bytes]:
    """The socket, the status of the answer, and what came behind its head."""
    parts = urlsplit(url)
    assert parts.hostname
    opened = socket.create_connection((parts.hostname, parts.port or 80), PATIENCE)
    head = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    opened.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = opened.recv(65_536)
        assert piece, answer
        answer += piece
    head_, _, rest = answer.partition(b"\r\n\r\n")
    return opened, int(head_.split(b" ", 2)[1]), rest


def frame(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """As a client sends it; the mask is zero."""
    size = len(payload)
    if size < 126:
        length = struct.pack("!B", 0x80 | size)
    elif size < 65_536:
        length = struct.pack("!BH", 0x80 | 126, size)
    else:
        length = struct.pack("!BQ", 0x80 | 127, size)
    return bytes([opcode | (0x80 if final else 0)]) + length + bytes(4) + payload


def send_while_taken(opened: socket.socket, data: bytes, most: int, *, patience: float) -> int:
    """Send ``data`` again and again until the peer takes nothing for ``patience`` seconds, or ``most`` bytes. Returns how many were."""
    opened.settimeout(patience)
    sent, rest = 0, memoryview(b"")
    try:
        while sent < most:
            rest = rest or memoryview(data)
            count = opened.send(rest)
            rest = rest[count:]
            sent += count
    except TimeoutError:
        pass
    return sent


def reset(opened: socket.socket) -> None:
    """Close with a TCP reset."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    opened.close()
