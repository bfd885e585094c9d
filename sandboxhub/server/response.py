"""The bytes of one response: what ASGI's messages become on the wire."""

import re

from sandboxhub.server import problems
from sandboxhub.server.types import Headers, Message

NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
OURS = {b"connection", b"transfer-encoding", b"keep-alive"}  # framing is the server's business
NO_BODY = {204, 304}


class Response:
    """Turns the messages of one response into bytes. Wrong messages raise ValueError, which reaches the application."""

    def __init__(self, method: str, version: str) -> None:
        self._head_request = method == "HEAD"
        self._version = version
        self._status: int | None = None
        self._headers: Headers = []
        self._left: int | None = None  # bytes that the declared content-length still promises
        self._chunked = False
        self.started = False  # the head is on the wire
        self.complete = False
        self.size = 0  # bytes of body sent
        self.wants_close = False  # the application said connection: close

    @property
    def status(self) -> int:
        return self._status or 0

    @property
    def short(self) -> bool:
        """Whether the application declared more than it sent: only ending the connection can tell the client."""
        return bool(self._left)

    def start(self, message: Message) -> None:
        """Take http.response.start. Nothing goes on the wire before the first body message, as ASGI asks."""
        if self._status is not None:
            raise ValueError("The response has already been started.")
        status = int(message["status"])
        if not 200 <= status <= 999:
            raise ValueError(f"{status} is no final status.")
        headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", [])]
        for name, value in headers:
            if not NAME.fullmatch(name) or BAD_VALUE.search(value):
                raise ValueError(f"The header {name!r} is not valid.")
        lengths = {value for name, value in headers if name == b"content-length"}
        if len(lengths) > 1 or not all(value.isdigit() for value in lengths):
            raise ValueError("The response has a bad content-length.")
        self.wants_close = any(name == b"connection" and b"close" in value.lower() for name, value in headers)
        self._headers = [item for item in headers if item[0] not in OURS]
        if lengths and not self._bodyless(status):
            self._left = int(lengths.pop())
        self._status = status

    def body(self, message: Message, *, close: bool) -> list[bytes]:
        """Take http.response.body; returns what to write. `close` says that the connection ends with this response."""
        if self._status is None:
            raise ValueError("The response has not been started.")
        if self.complete:
            raise ValueError("The response is already complete.")
        data, last = bytes(message.get("body", b"")), not message.get("more_body", False)
        if self._left is not None and len(data) > self._left:
            raise ValueError("The response is longer than its content-length.")
        parts = [] if self.started else [self._head(self._status, data if last else None, close=close)]
        self.started, self.complete = True, last
        if self._bodyless(self._status):
            return parts
        self.size += len(data)
        if self._left is not None:
            self._left -= len(data)
        if data:
            parts += [b"%x\r\n" % len(data), data, b"\r\n"] if self._chunked else [data]
        if last and self._chunked:
            parts.append(b"0\r\n\r\n")
        return parts

    def _bodyless(self, status: int) -> bool:
        return self._head_request or status in NO_BODY

    def _head(self, status: int, whole: bytes | None, *, close: bool) -> bytes:
        """The head; `whole` is the body when it is known to be all of it."""
        headers = list(self._headers)
        names = {name for name, _ in headers}
        if b"date" not in names:
            headers.append(problems.date_header())
        if b"content-length" not in names and not self._bodyless(status):
            if whole is not None:
                headers.append((b"content-length", b"%d" % len(whole)))
            elif self._version == "1.1":
                headers.append((b"transfer-encoding", b"chunked"))
                self._chunked = True
        if close:
            headers.append((b"connection", b"close"))
        return problems.head(status, headers)
