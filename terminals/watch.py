"""Tells the open terminals of this process what becomes of their leases: one query for all of them, every other second.

It needs no channel between the processes: the rows say what another one did. Within this process an end is felt at once, because the
guest's connection goes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog
from django.utils import timezone

from sandboxes.lifecycle.threads import in_thread
from sandboxes.models import Sandbox, State
from terminals.wire import Close

log = structlog.get_logger(__name__)

EVERY = 2.0  #: seconds
STAMP_EVERY = 25.0  #: seconds between two stamps of connectedAt while a terminal is open


@dataclass(frozen=True)
class Fate:
    """Why a terminal must close."""

    code: Close
    reason: str


class Watched(Protocol):
    lease: str

    def lease_ended(self, fate: Fate) -> None:
        """Called once, on the loop."""


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


class Watch:
    """The open terminals of one event loop."""

    def __init__(self) -> None:
        self._open: set[Watched] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, terminal: Watched) -> None:
        self._open.add(terminal)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def remove(self, terminal: Watched) -> None:
        self._open.discard(terminal)
        if not self._open and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        stamped = 0.0
        while True:
            pks = sorted({terminal.lease for terminal in self._open})
            try:
                if loop.time() - stamped >= STAMP_EVERY:
                    stamped = loop.time()
                    await in_thread(_stamp, pks)
                ended = await in_thread(fates, pks)
            except Exception:
                log.exception("the leases of open terminals could not be looked at")
                ended = {}
            for terminal in list(self._open):
                if terminal.lease in ended:
                    terminal.lease_ended(ended[terminal.lease])
            await asyncio.sleep(EVERY)


def _stamp(pks: list[str]) -> None:
    Sandbox.objects.filter(pk__in=pks, state=State.RUNNING).update(connected_at=timezone.now())
