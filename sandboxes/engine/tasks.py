"""What the engines share for their tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sandboxes.engine.base import Running
from sandboxes.errors import StartFailed

_T = TypeVar("_T")


class Starts:
    """The starts that are under way, by the name of the sandbox."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[asyncio.Task[Running]]] = {}

    async def run(self, name: str, work: Coroutine[Any, Any, Running]) -> Running:
        """Await ``work``, the start of ``name``. To cancel this cancels it, and returns when it has cleaned up.

        Raises ``StartFailed`` when ``cancel`` or ``close`` put an end to it.
        """
        task = asyncio.create_task(work)
        tasks = self._tasks.setdefault(name, set())
        tasks.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():  # by `cancel` or `close`, not by who waits for it
                raise StartFailed("The sandbox was ended while it started.") from None
            task.cancel()
            await finish(_settled(task))
            raise
        finally:
            tasks.discard(task)
            if not tasks and self._tasks.get(name) is tasks:
                del self._tasks[name]

    def cancel(self, name: str) -> None:
        for task in self._tasks.get(name, ()):
            task.cancel()

    async def close(self) -> None:
        """Cancel all, and wait until they have cleaned up."""
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Muted:
    """Names of sandboxes whose death is no news: who ends or starts one learns of it by other means."""

    def __init__(self) -> None:
        self._holders: Counter[str] = Counter()

    def __contains__(self, name: str) -> bool:
        return self._holders[name] > 0

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        self._holders[name] += 1
        try:
            yield
        finally:
            self._holders[name] -= 1
            if not self._holders[name]:
                del self._holders[name]


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


async def _settled(task: asyncio.Task[Running]) -> None:
    await asyncio.wait([task])
