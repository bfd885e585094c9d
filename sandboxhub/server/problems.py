"""Answers that the server gives in its own name, as RFC 9457 problem documents."""

import http
import json
from email.utils import formatdate

from sandboxhub.server.types import Headers

CODES = {400: "bad_request", 403: "forbidden", 405: "method_not_allowed", 408: "timeout", 413: "too_large", 414: "uri_too_long"} | {
    417: "expectation_failed", 431: "headers_too_large", 500: "internal", 501: "not_implemented", 503: "unavailable", 505: "http_version"
}  # fmt: skip


def phrase(status: int) -> str:
    """The reason phrase of RFC 9110, empty for a status that has none."""
    if status == http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "Content Too Large"  # Python 3.11 still has the phrase of RFC 2616
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def head(status: int, headers: Headers) -> bytes:
    """A status line and header section. The caller vouches that names and values are valid."""
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, phrase(status).encode())]
    lines += [b"%s: %s\r\n" % header for header in headers]
    return b"".join([*lines, b"\r\n"])


def going_away(*, body: bool = True) -> bytes:
    """What a server that drains answers to what it can't finish."""
    return problem(503, "The server is going away.", code="draining", body=body)


def date_header() -> tuple[bytes, bytes]:
    return b"date", formatdate(usegmt=True).encode()


def problem(status: int, detail: str, *, code: str | None = None, extra: Headers | None = None, body: bool = True) -> bytes:
    """A whole response that ends its connection; without the body itself for HEAD. `code` is the status's own unless given."""
    document = {"type": "about:blank", "title": phrase(status), "status": status, "detail": detail}
    document["code"] = code or CODES.get(status, "error")
    content = json.dumps(document).encode()
    headers: Headers = [
        date_header(),
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(content)),
        (b"connection", b"close"),
        *(extra or []),
    ]
    return head(status, headers) + (content if body else b"")
