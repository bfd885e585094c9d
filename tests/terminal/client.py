"""A client of the terminal's socket that does one thing at a time."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from harness.client import Lease
from harness.waiting import PATIENCE
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


def ticket(lease: Lease, prefix: str = "/sandboxes") -> str:
    response = lease.api.post(f"{prefix}/{lease.id}/terminal/ticket")
    assert response.status_code == 201, response.text
    return str(response.json()["ticket"])


def address(lease: Lease, **query: Any) -> str:
    """The socket's URL."""
    given = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
    return f"{lease.api.url.replace('http', 'ws', 1)}/v1/sandboxes/{lease.id}/terminal/ws?{given}"


def refused(url: str, **options: Any) -> dict[str, Any]:
    """The problem that the handshake is answered with."""
    with pytest.raises(InvalidStatus) as caught:
        connect(url, open_timeout=PATIENCE, **options)
    response = caught.value.response
    assert "Upgrade" not in response.headers
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.body is not None
    problem: dict[str, Any] = json.loads(response.body)
    assert problem["status"] == response.status_code
    return problem


class Terminal:
    """An open terminal. ``seen`` is all output so far that ``until`` has not consumed; ``told`` are the text frames."""

    def __init__(self, lease: Lease, *, headers: dict[str, str] | None = None, **query: Any) -> None:
        query.setdefault("ticket", ticket(lease))
        opening = connect(address(lease, **query), max_size=None, compression=None, additional_headers=headers, open_timeout=PATIENCE)
        self.socket: ClientConnection = opening.__enter__()
        self.seen = b""
        self.told: list[dict[str, Any]] = []

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def type(self, data: bytes) -> None:
        self.socket.send(data)

    def control(self, **members: Any) -> None:
        self.socket.send(json.dumps(members))

    def resize(self, cols: Any, rows: Any) -> None:
        self.control(resize={"cols": cols, "rows": rows})

    def receive(self) -> bytes:
        """The next output."""
        while True:
            try:
                frame = self.socket.recv(timeout=PATIENCE)
            except TimeoutError:
                raise AssertionError(f"nothing more was shown after {self.seen[-1000:]!r}") from None
            if isinstance(frame, bytes):
                return frame
            self.told.append(json.loads(frame))

    def until(self, mark: bytes) -> bytes:
        """Read on until ``mark`` has been shown; what came before it."""
        deadline = time.monotonic() + PATIENCE
        while mark not in self.seen:
            assert time.monotonic() < deadline, self.seen[-500:]
            self.seen += self.receive()
        before, _, self.seen = self.seen.partition(mark)
        return before

    def exactly(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        parts, have = [self.seen], len(self.seen)
        while have < count:
            parts.append(self.receive())
            have += len(parts[-1])
        joined = b"".join(parts)
        self.seen = joined[count:]
        return joined[:count]

    def closed(self) -> tuple[int, str, bytes]:
        """Read to the end: close code, reason, and the output that came before."""
        rest = [self.seen]
        try:
            while True:
                rest.append(self.receive())
        except ConnectionClosed as end:
            assert end.rcvd is not None, "the server dropped the connection"
            return end.rcvd.code, end.rcvd.reason, b"".join(rest)

    def plain(self) -> Terminal:
        """Replace the shell by one that shows nothing but what commands print: no echo, no prompt, output as it is."""
        self.type(b"exec sh -c 'stty raw -echo; printf \"<%s>\" plain; PS1= exec sh 2>/dev/null'\n")
        self.until(b"<plain>")
        return self

    def run(self, command: str) -> bytes:
        """Run a line in a ``plain`` shell; its output, byte for byte."""
        self.type(f"{command}; printf '<%s>' done\n".encode())
        return self.until(b"<done>")
