"""Make what runs and what the database says agree again: after a crash, after a death nobody saw, and whenever a clock says so."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from django.utils import timezone

from sandboxes.engine.base import Health
from sandboxes.lifecycle import transitions
from sandboxes.lifecycle.hub import Hub
from sandboxes.lifecycle.leases import finish_delete_volume
from sandboxes.lifecycle.processes import may_live, place, this_process
from sandboxes.lifecycle.threads import in_thread
from sandboxes.models import Sandbox, State

log = structlog.get_logger(__name__)


def _rows() -> dict[str, Sandbox]:
    """The leases that something may be running for, where this process can see it, by container."""
    mine = Sandbox.objects.here(*place()).exclude(state=State.ENDED)
    return {sandbox.container: sandbox for sandbox in mine}


async def reconcile(hub: Hub) -> None:
    """Both ways: a lease whose sandbox is gone fails, a start that a crash cut short is taken up, and what no lease holds is ended.

    Rows are read before and after the engine is asked, so that a sandbox that starts or ends meanwhile is not misjudged.
    """
    before = await in_thread(_rows)
    observed = await hub.engine.observe()
    after = await in_thread(_rows)
    for name, row in before.items():
        if row.state == State.RUNNING and observed.get(name) is not Health.RUNNING:
            await hub.lost(name, "the sandbox was found dead" if name in observed else "the sandbox was found gone; did the host restart?")
        elif row.state == State.PENDING and not hub.starting(row.pk) and _is_orphaned(row):
            if await in_thread(transitions.claim_start, row.pk, dead=row.worker, worker=this_process()):
                hub.begin_start(row.pk, await in_thread(transitions.plan, row))
        elif row.state == State.ERROR and row.attached and name not in observed:
            await in_thread(transitions.released, name)
    for name in observed:
        if name not in after or after[name].state == State.ERROR:
            await hub.remove(name)


def _is_orphaned(row: Sandbox) -> bool:
    """Nobody starts it any more. A process of another host counts as dead once it has had the time for any start.

    To be wrong about that does no harm: a start is idempotent by its name, and one of the two finds that the lease runs already.
    """
    alive = may_live(row.worker)
    return not alive if alive is not None else row.retry_at is None or row.retry_at <= timezone.now()


async def sweep(hub: Hub) -> list[asyncio.Task[Any]]:
    """Do what the clocks ask for; the tasks that end sandboxes are returned, not awaited. Costs the rows that are due."""
    due = await in_thread(transitions.due, *place())
    tasks = []
    for sandbox, reason in due.leases:
        if await in_thread(transitions.begin_end, sandbox, reason=reason, actor="reaper", expired=True):
            log.info("a lease ends", lease=sandbox.pk, reason=reason)
            tasks.append(hub.begin_end(sandbox.pk))
    tasks += [hub.begin_end(pk) for pk in due.ending]
    for name in due.volumes:
        await finish_delete_volume(hub, name)
    return tasks
