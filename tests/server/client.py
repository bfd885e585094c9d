"""What the server's tests talk with: a server in its own process, and clients that can be as rude as they like."""

import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 60  # a test that waits this long for a byte has failed
HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def problem(self) -> dict[str, Any]:
        assert self.header("content-type") == "application/problem+json"
        return json.loads(self.body)


class Raw:
    """One TCP connection, byte by byte."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self.buffer = b""

    def send(self, data: bytes | str) -> "Raw":
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)
        return self

    def _more(self) -> bool:
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            assert self._more(), f"the connection ended after {self.buffer[:200]!r}"
        found, self.buffer = self.buffer.split(mark, 1)
        return found

    def exactly(self, count: int) -> bytes:
        parts, size = [self.buffer], len(self.buffer)
        while size < count:
            data = self.socket.recv(1024 * 1024)
            assert data, "the connection ended early"
            parts.append(data)
            size += len(data)
        whole = b"".join(parts)
        self.buffer = whole[count:]
        return whole[:count]

    def rest(self) -> bytes:
        """Everything until the server ends its side."""
        parts = [self.buffer]
        while data := self.socket.recv(1024 * 1024):
            parts.append(data)
        self.buffer = b""
        return b"".join(parts)

    def ended(self) -> bool:
        """Whether the next thing is the end of the connection, in peace or by a reset."""
        try:
            return not self.buffer and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def response(self, *, head: bool = False) -> Response:
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = [(name.lower(), value) for name, value in (line.split(": ", 1) for line in lines[1:])]
        response = Response(status, headers, b"")
        length = response.header("content-length")
        if head or status in (100, 101, 204, 304):
            return response
        if length is not None:
            response.body = self.exactly(int(length))
        elif response.header("transfer-encoding") == "chunked":
            chunks = []
            while size := int(self.until(b"\r\n"), 16):
                chunks.append(self.exactly(size + 2)[:-2])
            self.until(b"\r\n")
            response.body = b"".join(chunks)
        else:
            response.body = self.rest()
        return response

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        self.close()

    def reset(self) -> None:
        """Close with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # websockets

    def upgrade(self, path: str) -> Response:
        return self.send(HANDSHAKE.format(path=path)).response()

    def frame(self, opcode: int, payload: bytes, *, length: int | None = None) -> "Raw":
        """Send one masked frame, with a mask of zeros. `length` lies about the payload's."""
        return self.send(frame_head(opcode, len(payload) if length is None else length) + payload)

    def read_frame(self) -> tuple[int, bytes]:
        first, second = self.exactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self.exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self.exactly(8))
        return first & 0x0F, self.exactly(size)

    def read_close(self) -> tuple[int, str]:
        """Skip to the close frame; its code and reason."""
        while (frame := self.read_frame())[0] != 8:
            pass
        return struct.unpack("!H", frame[1][:2])[0], frame[1][2:].decode()


def frame_head(opcode: int, size: int) -> bytes:
    extended = (
        bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size) if size < 65536 else b"\xff" + struct.pack("!Q", size)
    )
    return bytes([0x80 | opcode]) + extended + b"\0\0\0\0"


class Hub:
    """A server process. Its output is kept; `log` has it once the process has ended."""

    def __init__(self, *command: str, **env: str) -> None:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.server.settings", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, *(command or ("-m", "tests.server.run", "0"))],
            cwd=ROOT,
            env=environment | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def line(self, start: str) -> str:
        """Wait for a line of output."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or any(line.startswith(start) for line in self.lines), SECONDS)
            found = [line for line in self.lines if line.startswith(start)]
        assert found, self.log
        return found[0]

    def ready(self) -> "Hub":
        self.port = int(self.line("listening ").split()[2])
        return self

    def get(self, path: str) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return Response(response.status, [(name.lower(), value) for name, value in response.getheaders()], response.read())

    def wait(self, event: str) -> None:
        assert self.get(f"/wait/{event}").body == b"came"

    def set(self, event: str) -> None:
        assert self.get(f"/set/{event}").body == b"set"

    def stats(self) -> dict[str, Any]:
        return json.loads(self.get("/stats").body)

    def raw(self, receive_buffer: int | None = None) -> Raw:
        return Raw(self.port, receive_buffer)

    def terminate(self, number: int = signal.SIGTERM) -> "Hub":
        self.process.send_signal(number)
        return self

    def exit_code(self) -> int:
        code = self.process.wait(SECONDS)
        self._reader.join()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


@contextlib.contextmanager
def hub(*command: str, **env: str) -> Iterator[Hub]:
    server = Hub(*command, **env)
    try:
        yield server
    finally:
        server.kill()
