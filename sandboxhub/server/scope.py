"""From a request's head to an ASGI scope: the target, the headers that frame and address it, and what a proxy says."""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from sandboxhub.server.types import Headers, Scope

ASGI = {"version": "3.0", "spec_version": "2.3"}
TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+")  # visible ASCII without "#"
ABSOLUTE = re.compile(rb"(?i:https?)://([^/?@]+)(.*)", re.DOTALL)


class BadRequest(Exception):
    """A request that can't be passed on. Carries the status and the detail of the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class HeaderList:
    """A request's headers in the order they came, names in lower case, duplicates kept. Twisted's parser fills it."""

    def __init__(self) -> None:
        self.items: Headers = []

    def addRawHeader(self, name: bytes, value: bytes) -> None:
        self.items.append((name.lower(), value))

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.items if key == name]

    def first(self, name: bytes) -> bytes | None:
        return next(iter(self.all(name)), None)

    def tokens(self, name: bytes) -> Iterator[bytes]:
        """The members of a comma-separated header, in lower case."""
        for value in self.all(name):
            yield from (token.strip().lower() for token in value.split(b","))


@dataclass
class Head:
    """A request's line and headers, checked."""

    method: str
    target: bytes  # in origin form: path and query
    version: str  # 1.0 or 1.1
    headers: HeaderList
    raw_path: bytes = field(init=False)
    query: bytes = field(init=False)
    path: str = field(init=False)

    def __post_init__(self) -> None:
        self.raw_path, _, self.query = self.target.partition(b"?")
        self.path = unquote(self.raw_path.decode("ascii"))

    @classmethod
    def parse(cls, method: bytes, target: bytes, version: bytes, headers: HeaderList) -> "Head":
        """Raises BadRequest for a target or Host that HTTP does not allow."""
        if not TARGET.fullmatch(target):
            raise BadRequest(400, "The request target has characters that are not allowed.")
        if absolute := ABSOLUTE.fullmatch(target):
            authority, rest = absolute.groups()
            target = rest if rest.startswith(b"/") else b"/" + rest
            headers.items = [(b"host", authority), *(item for item in headers.items if item[0] != b"host")]
        elif not target.startswith(b"/") and (method, target) != (b"OPTIONS", b"*"):
            raise BadRequest(400, "The request target must be a path or an http URL.")
        hosts = len(headers.all(b"host"))
        if hosts > 1 or (hosts == 0 and version == b"HTTP/1.1"):
            raise BadRequest(400, "The request must have exactly one Host header.")
        if version == b"HTTP/1.0" and headers.all(b"transfer-encoding"):
            raise BadRequest(400, "HTTP/1.0 has no Transfer-Encoding.")
        return cls(method.decode("ascii"), target, version.rpartition(b"/")[2].decode("ascii"), headers)

    @property
    def upgrades_to_websocket(self) -> bool:
        if self.method != "GET" or self.version != "1.1":
            return False
        return b"upgrade" in self.headers.tokens(b"connection") and b"websocket" in self.headers.tokens(b"upgrade")

    @property
    def persistent(self) -> bool:
        """Whether the client wants the connection to serve further requests."""
        return self.version == "1.1" and b"close" not in self.headers.tokens(b"connection")


def address_of(address: Any) -> list[Any] | None:
    """A Twisted address as ASGI's pair; None for a UNIX socket."""
    return [str(address.host), address.port] if hasattr(address, "port") else None


def build(head: Head, channel: Any, *, root_path: str, proxy_headers: bool, state: dict[str, Any]) -> Scope:
    """The scope of an http request."""
    client, scheme = address_of(channel.getPeer()), "https" if channel.isSecure() else "http"
    if proxy_headers:
        client, scheme = forwarded(head.headers, client, scheme)
    return {
        "type": "http",
        "asgi": dict(ASGI),
        "http_version": head.version,
        "method": head.method,
        "scheme": scheme,
        "path": head.path,
        "raw_path": head.raw_path,
        "query_string": head.query,
        "root_path": root_path,
        # A name with an underscore could pass for one with a hyphen once Django has made both into the same key of META.
        "headers": [item for item in head.headers.items if b"_" not in item[0]],
        "client": client,
        "server": address_of(channel.getHost()),
        "state": state.copy(),
    }


def as_websocket(scope: Scope) -> Scope:
    """The scope of the handshake that an http request asks for."""
    protocols = [value for name, value in scope["headers"] if name == b"sec-websocket-protocol"]
    names = [part.strip() for value in protocols for part in value.decode("latin-1").split(",")]
    socket = {key: value for key, value in scope.items() if key != "method"}
    return socket | {
        "type": "websocket",
        "scheme": "wss" if scope["scheme"] == "https" else "ws",
        "subprotocols": [name for name in names if name],
        "extensions": {"websocket.http.response": {}},
    }


def forwarded(headers: HeaderList, client: list[Any] | None, scheme: str) -> tuple[list[Any] | None, str]:
    """The client's address and scheme as the nearest proxy tells them.

    The last entry of each header counts: it is the one that our proxy wrote. Those before it came from the client, who may lie.
    """
    if names := list(headers.tokens(b"x-forwarded-for")):
        try:
            client = [str(ipaddress.ip_address(names[-1].decode("latin-1").strip("[]"))), 0]
        except ValueError:
            pass  # not an address: the peer's own is the best that is known
    if (schemes := list(headers.tokens(b"x-forwarded-proto"))) and schemes[-1] in (b"http", b"https"):
        scheme = schemes[-1].decode()
    return client, scheme
