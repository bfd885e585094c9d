"""The server's settings, read from Django's when the server starts."""

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.utils.module_loading import import_string

BodyLimit = Callable[[str, str], int]
DEFAULT_BODY_LIMIT = 16 * 1024 * 1024


def default_body_limit(method: str, path: str) -> int:
    """The most bytes that the body of a request may have."""
    return DEFAULT_BODY_LIMIT


@dataclass(frozen=True)
class ServerSettings:
    """Times are in seconds. Every field is a Django setting named SERVER_ plus the field's name in capitals."""

    body_limit: BodyLimit = default_body_limit  # (method, decoded path) -> bytes; as a dotted path or a callable
    proxy_headers: bool = False  # take the client's address and scheme from X-Forwarded-For and X-Forwarded-Proto
    drain_seconds: float = 20  # how long requests in flight may go on after a SIGTERM
    answer_seconds: float = 10  # how long they then have to answer, once on_drain's callbacks were called
    header_seconds: float = 20  # a request's headers must be complete this long after its first byte
    idle_seconds: float = 60  # silence between requests, or in the middle of a body
    stall_seconds: float = 300  # a client that takes nothing of what waits for it
    handshake_seconds: float = 30  # the application must accept or deny a websocket by then
    ping_seconds: float = 20  # silence on a websocket before it is pinged
    pong_seconds: float = 30  # silence after the ping before it is dropped
    close_seconds: float = 60  # an application that still runs this long after its client went is cancelled


def load() -> ServerSettings:
    """The settings in force. Raises ImportError when SERVER_BODY_LIMIT names nothing."""
    values = {}
    for name in ServerSettings.__dataclass_fields__:
        value = getattr(settings, f"SERVER_{name.upper()}", None)
        if value is not None:
            values[name] = import_string(value) if name == "body_limit" and isinstance(value, str) else value
    return ServerSettings(**values)
