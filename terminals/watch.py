"""The open terminals of this process: how many there are, what becomes of their leases, and that they are in use. A few queries for all of
them, every few seconds.

It needs no channel between the processes: the rows say what another one did. Within this process an end is felt at once, because the
guest's connection goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog
from django.utils import timezone

from sandboxes.lifecycle.threads import in_thread
from sandboxes.models import Sandbox, State
from terminals import tickets
from terminals.wire import Close

log = structlog.get_logger(__name__)

TERMINALS_MOST = 200  #: of one sandbox, in this process
LOOK_EVERY = 2.0  #: seconds
NOTE_EVERY = 5.0  #: seconds between two stamps of lastUsedAt
STAMP_EVERY = 25.0  #: seconds between two stamps of connectedAt while a terminal is open


@dataclass(frozen=True)
class Fate:
    """Why a terminal must close."""

    code: Close
    reason: str


class Watched(Protocol):
    lease: str
    ticket: int

    def lease_ended(self, fate: Fate) -> None:
        """Called on the loop, perhaps more than once."""

    def take_use(self) -> bool:
        """Whether something was typed or shown since the last call."""


def fates(pks: list[str]) -> dict[str, Fate]:
    """Those of ``pks`` whose lease serves no terminal any more."""
    now = timezone.now()
    rows = {row[0]: row[1:] for row in Sandbox.objects.filter(pk__in=pks).values_list("pk", "state", "end_reason", "error", "expires_at")}
    found = {}
    for pk in pks:
        if pk not in rows:
            found[pk] = Fate(Close.LEASE_ENDED, "the lease has ended")
        elif (fate := _fate(*rows[pk], now)) is not None:
            found[pk] = fate
    return found


def _fate(state: str, end_reason: str, error: str, expires_at: datetime, now: datetime) -> Fate | None:
    if state == State.ERROR:
        return Fate(Close.DIED, f"the sandbox died: {error}")
    if state != State.RUNNING:
        staff = "staff" in end_reason
        return Fate(Close.STAFF if staff else Close.LEASE_ENDED, "ended by staff" if staff else f"the lease has ended: {end_reason}")
    if expires_at <= now:
        return Fate(Close.LEASE_ENDED, "the lease has ended: its time is over")
    return None


def stamp_used(pks: Collection[str]) -> None:
    now = timezone.now()
    Sandbox.objects.filter(pk__in=pks, last_used_at__lt=now).update(last_used_at=now)


def _stamp_open(pks: Collection[str], tickets_: Collection[int]) -> None:
    Sandbox.objects.filter(pk__in=pks, state=State.RUNNING).update(connected_at=timezone.now())
    tickets.keep_open(tickets_)


class Watch:
    """The open terminals of one event loop."""

    def __init__(self) -> None:
        self._open: set[Watched] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def full(self, lease: str) -> bool:
        """Whether the sandbox has as many terminals as it may have."""
        return sum(terminal.lease == lease for terminal in self._open) >= TERMINALS_MOST

    def add(self, terminal: Watched) -> None:
        self._open.add(terminal)
        if not self._tasks:
            # Apart from each other: a database that takes no writes for a while must not hide the end of a lease.
            self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._note())]

    def remove(self, terminal: Watched) -> None:
        """Idempotent."""
        self._open.discard(terminal)
        if not self._open:
            for task in self._tasks:
                task.cancel()
            self._tasks = []

    async def _look(self) -> None:
        while True:
            try:
                ended = await in_thread(fates, sorted({terminal.lease for terminal in self._open}))
            except Exception:
                log.exception("the leases of open terminals could not be looked at")
                ended = {}
            for terminal in list(self._open):
                if terminal.lease in ended:
                    terminal.lease_ended(ended[terminal.lease])
            await asyncio.sleep(LOOK_EVERY)

    async def _note(self) -> None:
        loop = asyncio.get_running_loop()
        known: set[str] = set()
        due = 0.0
        while True:
            terminals = list(self._open)
            leases = {terminal.lease for terminal in terminals}
            used = {terminal.lease for terminal in terminals if terminal.take_use()}
            try:
                if used:
                    await in_thread(stamp_used, used)
                if loop.time() >= due or not leases <= known:
                    due, known = loop.time() + STAMP_EVERY, leases
                    await in_thread(_stamp_open, leases, [terminal.ticket for terminal in terminals])
            except Exception:
                log.exception("the use of open terminals could not be noted")
            await asyncio.sleep(NOTE_EVERY)
