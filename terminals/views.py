"""Tickets over REST, the page, and what a socket's address answers to plain HTTP."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from asgiref.typing import HTTPScope
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from sandboxes import errors
from sandboxes.api import files, problems
from sandboxes.api.base import ApiViewSet
from sandboxes.api.leases import find
from sandboxes.api.schema import operation
from sandboxes.lifecycle import work
from sandboxes.models import PUBLIC, Sandbox
from terminals import access, tickets
from terminals.models import Ticket


class TicketOut(serializers.Serializer[Any]):
    ticket = serializers.CharField(help_text="Opens one terminal, once.")
    expiresIn = serializers.IntegerField(help_text="Seconds.")
    url = serializers.CharField(help_text="The page with the ticket on it: an absolute path.")


class TicketViewSet(ApiViewSet):
    """Mints tickets. A browser carries no Authorization header into a frame or a socket; a ticket stands in its place."""

    scopes = {"create": "use"}

    @operation("post_sandbox_by_id_terminal_ticket", "Mint a single-use ticket for one terminal", answers={201: TicketOut})
    def create(self, request: Request, pk: str) -> Response:
        sandbox = find(self.org(), pk)
        work.require_running(sandbox)
        ticket = tickets.mint(sandbox, Ticket.Door.TERMINAL, actor=self.actor())
        url = f"{request.path.removesuffix('/ticket')}?ticket={ticket}"
        return Response({"ticket": ticket, "expiresIn": tickets.LIFE, "url": url}, status=201)


@cache
def _built() -> tuple[bytes, str]:
    """The page and its Content-Security-Policy: only the code that was built into it runs, and only this server is spoken to."""
    directory = settings.TERMINAL_PAGE
    hashes = json.loads((directory / "csp.json").read_text())
    policy = {
        "default-src": ["'none'"],
        "script-src": [f"'{value}'" for value in hashes["script"]],
        "style-src": [f"'{value}'" for value in hashes["style"]] + hashes.get("style_extra", []),
        "font-src": ["data:"],
        "img-src": ["data:"],
        "connect-src": ["'self'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'self'", *settings.SANDBOXHUB_ORIGINS],
    }
    return (directory / "terminal.html").read_bytes(), "; ".join(" ".join([name, *values]) for name, values in policy.items())


@require_safe
def page(request: HttpRequest, pk: str) -> HttpResponse:
    """The terminal as a page: constant, not gated. It carries its ticket to the socket and does not redeem it."""
    try:
        html, policy = _built()
    except OSError:
        return problems.respond(503, problems.document(503, "the terminal's page was not built: run script/setup", "not_built"))
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return HttpResponse(html, content_type="text/html; charset=utf-8", headers=headers)


@require_safe
def not_upgraded(request: HttpRequest, pk: str) -> HttpResponse:
    """A plain GET of the socket's address."""
    if not request.GET.get("ticket"):
        return problems.respond(*problems.of(access.TicketInvalid("a ticket is needed: POST .../terminal/ticket")))
    body = problems.document(426, "this is a WebSocket's address", "upgrade_required")
    return problems.respond(426, body, {"Upgrade": "websocket", "Connection": "Upgrade"})


def by_upload_token(scope: HTTPScope) -> Sandbox:
    """The sandbox that the page of an open terminal may upload to."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    access.check_origin(headers.get(b"origin"), headers.get(b"host", ""))
    ticket = tickets.uploader(access.fields(scope["query_string"]).get("token", ""), scope["path"].split("/")[3])
    if ticket is None:
        raise access.TicketInvalid("the terminal that this upload belongs to is not open any more")
    if ticket.sandbox.state not in PUBLIC:
        raise errors.NotFound("no such sandbox")
    return files.usable(ticket.sandbox)
