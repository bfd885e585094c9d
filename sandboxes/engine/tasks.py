"""What the engines share for their tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from sandboxes.errors import StartFailed

_T = TypeVar("_T")


class _Start:
    """What a task does within ``Starts.one``."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.over = asyncio.Event()
        self.stopped = False
        self._task = task
        self._cancelling = task.cancelling()

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._task.cancel()

    def was_cancelled(self) -> bool:
        """Whether somebody else than ``stop`` cancelled the task. To be asked once, at the end."""
        return not self.stopped or self._task.uncancel() > self._cancelling


class Starts:
    """The starts that are under way, by the name of the sandbox.

    Each runs in the task of who wants it: when that ends cancelled, it has cleaned up.
    """

    def __init__(self) -> None:
        self._starts: dict[str, set[_Start]] = {}

    @asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[None]:
        """Around the start of ``name``. Raises ``StartFailed`` when ``stop`` or ``close`` put an end to it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a coroutine runs in one)
        start = _Start(task)
        starts = self._starts.setdefault(name, set())
        starts.add(start)
        try:
            yield
        except asyncio.CancelledError:
            if start.was_cancelled():
                raise
            raise StartFailed("The sandbox was ended while it started.") from None
        except BaseException:
            start.was_cancelled()
            raise
        finally:
            start.over.set()
            starts.discard(start)
            if not starts and self._starts.get(name) is starts:
                del self._starts[name]

    def stop(self, name: str) -> None:
        """Put an end to the starts of ``name``; each cleans up, and holds the lock of the name meanwhile."""
        for start in self._starts.get(name, ()):
            start.stop()

    async def close(self) -> None:
        """Put an end to all, and wait until they have cleaned up."""
        every = [start for starts in self._starts.values() for start in starts]
        for start in every:
            start.stop()
        for start in every:
            await start.over.wait()


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
