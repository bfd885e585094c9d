"""Whether the world around sandboxes keeps them apart, tried out at start and every few hours, beside everything else."""

from __future__ import annotations

import asyncio

import structlog

from sandboxes import errors
from sandboxes.lifecycle.hub import Hub

log = structlog.get_logger(__name__)

EVERY = 6 * 3600.0  #: seconds; a policy may be taken away by mistake
AGAIN = 600.0  #: seconds, after a try that told nothing


async def run(hub: Hub) -> None:
    """Audit until cancelled; what was found last is ``hub.warnings``."""
    while True:
        pause = EVERY
        try:
            hub.warnings = await hub.engine.audit()
        except errors.SandboxError as error:
            log.warning("whether sandboxes are cut off from the network could not be tried", reason=error.detail)
            pause = AGAIN
        except Exception:
            log.exception("the audit failed")
            pause = AGAIN
        for warning in hub.warnings:
            log.warning(warning)
        await asyncio.sleep(pause)
