"""The reaper: sweeps the clocks and reconciles, for ever or once. It runs inside ``serve`` and as ``manage.py reap``."""

from __future__ import annotations

import asyncio

import structlog
from django.conf import settings

from sandboxes import errors
from sandboxes.lifecycle.hub import Hub
from sandboxes.lifecycle.reconcile import reconcile, sweep

log = structlog.get_logger(__name__)

RECONCILE_EVERY = 30.0  #: seconds


async def run(hub: Hub) -> None:
    """Reap until cancelled. A failure is logged and tried again at the next turn."""
    loop = asyncio.get_running_loop()
    next_reconcile = 0.0
    while True:
        try:
            await sweep(hub)  # first: clocks go on while the engine cannot be asked
            if loop.time() >= next_reconcile:
                await reconcile(hub)
                next_reconcile = loop.time() + RECONCILE_EVERY
        except errors.EngineError as error:  # also 403s of an API server that has just started, and knows no roles yet
            log.warning("the reaper could not ask the engine", reason=error.detail)
        except Exception:
            log.exception("the reaper failed this turn")
        await asyncio.sleep(settings.SANDBOXHUB_REAP_INTERVAL)


async def run_once(hub: Hub) -> int:
    """One turn, to its end; the number of leases whose end was worked on."""
    await reconcile(hub)
    tasks = await sweep(hub)
    await asyncio.gather(*tasks)
    return len(tasks)
