"""Who may open a terminal's socket: checked in the contract's order (section 3), before any upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from asgiref.typing import WebSocketScope
from django.conf import settings

from sandboxes import errors
from sandboxes.lifecycle import work
from sandboxes.models import PUBLIC, Sandbox
from terminals import shell, tickets, wire
from terminals.models import Ticket


class TicketInvalid(errors.SandboxError):
    """Missing, unknown, expired, spent, or of another door: one answer for all."""

    status, code = 401, "ticket_invalid"


class InvalidArg(errors.InvalidRequest):
    code = "invalid_arg"


class TooManyTerminals(errors.SandboxError):
    status, code = 429, "too_many_terminals"


@dataclass(frozen=True)
class Admitted:
    """What a socket may do."""

    ticket: Ticket
    sandbox: Sandbox
    session: str  #: empty: a shell of its own
    rows: int
    cols: int
    flow: bool


def admit(scope: WebSocketScope, pk: str) -> Admitted:
    """Check a handshake and spend its ticket.

    Raises ``Forbidden``, ``InvalidRequest``, ``InvalidArg``, ``TicketInvalid``, ``NotFound`` or ``NotRunning``, in this order.
    """
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    check_origin(headers.get(b"origin"), headers.get(b"host", ""))
    query = fields(scope["query_string"])
    session = query.get("arg", "").strip()
    if session and not shell.is_session_name(session):
        raise InvalidArg("arg: 1 to 64 letters, digits, - or _, not beginning with -")
    ticket = tickets.redeem(query.get("ticket", ""), pk, Ticket.Door.TERMINAL)
    if ticket is None:
        raise TicketInvalid("the ticket is missing, unknown, expired, already spent, or for something else: mint a new one")
    sandbox = Sandbox.objects.select_related("org").filter(pk=ticket.sandbox_id, state__in=PUBLIC).first()
    if sandbox is None:
        raise errors.NotFound("no such sandbox")
    work.require_running(sandbox)
    rows, cols = _number(query.get("rows"), wire.DEFAULT_SIZE[0]), _number(query.get("cols"), wire.DEFAULT_SIZE[1])
    return Admitted(ticket, sandbox, session, rows, cols, flow=query.get("flow") == "1")


def fields(query: bytes) -> dict[str, str]:
    """The first value of each name in a raw query string. Raises ``InvalidRequest``."""
    try:
        return {name: values[0] for name, values in parse_qs(query.decode("latin-1"), max_num_fields=20).items()}
    except ValueError as error:
        raise errors.InvalidRequest("the query has too many parameters") from error


def check_origin(origin: str | None, host: str) -> None:
    """A browser names the page's origin; anything else need not (contract.md section 6, row 42)."""
    if origin is None:
        return
    try:
        parts = urlsplit(origin)
        own = parts.netloc.lower() == host.lower() and parts.scheme in ("http", "https")
    except ValueError:
        own = False
    if not own and origin.lower().rstrip("/") not in settings.SANDBOXHUB_ORIGINS:
        raise errors.Forbidden("this page's origin may not open terminals here")


def _number(text: str | None, default: int) -> int:
    return wire.clamp(int(text)) if text and text.isascii() and text.isdigit() and len(text) < 10 else default
