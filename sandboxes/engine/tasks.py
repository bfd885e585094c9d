"""What the engines share for their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def finish(work: Coroutine[Any, Any, _T]) -> _T:
    """Await ``work`` to its end although this task may be cancelled; the cancellation is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001 - raised by result() below
            break
    if cancelled is not None and not task.cancelled():
        task.exception()  # the cancellation matters more, and this one is seen
        raise cancelled
    return task.result()
