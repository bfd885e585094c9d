"""Mints and redeems tickets. Good on any replica: all state is in the database, and one conditional UPDATE decides who was first."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.utils import timezone

from sandboxes.models import Sandbox
from terminals.models import Ticket

LIFE = 30  #: seconds
_KEPT = timedelta(days=1)  # no terminal lives longer than a lease may


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def mint(sandbox: Sandbox, door: Ticket.Door, *, actor: str) -> str:
    """A new ticket's text: 43 characters of base64url. What is long over is swept on the way."""
    now = timezone.now()
    Ticket.objects.filter(expires_at__lt=now - _KEPT).delete()
    text = secrets.token_urlsafe(32)
    Ticket.objects.create(
        digest=_hash(text), sandbox=sandbox, door=door, actor=actor, created_at=now, expires_at=now + timedelta(seconds=LIFE)
    )
    return text


def redeem(text: str, sandbox: str, door: Ticket.Door) -> Ticket | None:
    """The ticket, if ``text`` is one for this door of this sandbox, in time, and never presented before. Either way it is spent."""
    now = timezone.now()
    tickets = Ticket.objects.filter(digest=_hash(text))
    if not text or not tickets.filter(spent_at=None).update(spent_at=now):
        return None
    return tickets.select_related("sandbox").filter(sandbox_id=sandbox, door=door, expires_at__gt=now).first()


def allow_uploads(ticket: Ticket) -> str:
    """A token by which the page of this terminal may write files while it is open."""
    token = secrets.token_urlsafe(32)
    Ticket.objects.filter(pk=ticket.pk).update(upload_digest=_hash(token))
    return token


def uploader(token: str, sandbox: str) -> Ticket | None:
    """The ticket whose terminal is open and whose upload token this is."""
    if not token:
        return None
    return Ticket.objects.select_related("sandbox").filter(upload_digest=_hash(token), sandbox_id=sandbox).first()


def close(ticket: Ticket) -> None:
    """The terminal has ended: nothing of its ticket is good for anything any more."""
    Ticket.objects.filter(pk=ticket.pk).delete()
