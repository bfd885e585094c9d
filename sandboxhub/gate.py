"""What is refused ahead of every application: API, terminals, file writes and pages alike."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from sandboxes.api import problems

Problem = tuple[int, str, str]  #: status, detail and code


def refusal(scope: Any) -> Problem | None:
    """The problem that answers a request or a handshake, or None: it may pass.

    ``ALLOWED_HOSTS`` holds for everything, not only where Django's pages look at it: a page of a foreign name that is made to resolve to
    this server (DNS rebinding) gets nothing. No path here has a NUL, which databases refuse in their own ways.
    """
    host = _host(scope["headers"])
    if host is not None and not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return 400, "this host name is not served here: see ALLOWED_HOSTS", "host_refused"
    if settings.SECURE_SSL_REDIRECT and scope["path"].startswith("/v1/") and scope["scheme"] not in ("https", "wss"):
        return 403, "the API is served over HTTPS only", "https_required"
    if "\0" in scope["path"]:
        return 404, "there is nothing here", "not_found"
    return None


def _host(headers: Any) -> str | None:
    """The name that the request is addressed to, as Django takes it; HTTP/1.0 need not say."""
    names = (b"x-forwarded-host", b"host") if settings.USE_X_FORWARDED_HOST else (b"host",)
    for name in names:
        if values := [value for key, value in headers if key == name]:
            return b",".join(values).decode("latin-1")
    return None


async def refuse(scope: Any, send: Any, problem: Problem) -> None:
    """Answer a request or a handshake with ``problem``."""
    if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close"})
        return
    status, detail, code = problem
    content = json.dumps(problems.document(status, detail, code)).encode()
    headers = [
        (b"content-type", problems.CONTENT_TYPE.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": content})
