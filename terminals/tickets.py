"""Mints and redeems tickets. Good on any replica: all state is in the database, and one conditional UPDATE decides who was first."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from django.utils import timezone

from sandboxes.models import Sandbox
from terminals.models import Ticket

LIFE = 30  #: seconds
OPEN_FOR = 120  #: seconds that a terminal counts as open, from each time that its process says so
_KEPT = timedelta(hours=1)  # after it expired


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
    Ticket.objects.filter(pk=ticket.pk).update(upload_digest=_hash(token), expires_at=_open_until())
    return token


def keep_open(pks: Collection[int]) -> None:
    """The terminals of these tickets are still open. A process that is killed can't say the opposite."""
    Ticket.objects.filter(pk__in=pks).update(expires_at=_open_until())


def _open_until() -> datetime:
    return timezone.now() + timedelta(seconds=OPEN_FOR)


def uploader(token: str, sandbox: str) -> Ticket | None:
    """The ticket whose terminal is open and whose upload token this is."""
    if not token:
        return None
    found = Ticket.objects.select_related("sandbox").filter(upload_digest=_hash(token), sandbox_id=sandbox)
    return found.filter(expires_at__gt=timezone.now()).first()


def close(ticket: Ticket) -> None:
    """The terminal has ended: nothing of its ticket is good for anything any more."""
    Ticket.objects.filter(pk=ticket.pk).delete()
