"""Starts that are put an end to, by who ends the sandbox or by who waits for the start."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.engine.tasks import Starts, finish
from sandboxes.errors import StartFailed


class Start:
    """A start that waits for ever, and says when it has begun and that it has cleaned up."""

    def __init__(self, starts: Starts) -> None:
        self.begun = asyncio.Event()
        self.may_clean_up = asyncio.Event()
        self.clean = False
        self.task = asyncio.create_task(self._run(starts))

    async def _run(self, starts: Starts) -> int:
        try:
            async with starts.one("m"):
                self.begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await finish(self._clean_up())
        except StartFailed:
            pass
        await asyncio.sleep(0)  # what this task does next is not cancelled
        current = asyncio.current_task()
        assert current is not None
        return current.cancelling()

    async def _clean_up(self) -> None:
        await self.may_clean_up.wait()
        self.clean = True


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
async def start(starts: Starts) -> Start:
    start = Start(starts)
    await start.begun.wait()
    return start


async def test_a_stop_is_no_cancellation(starts: Starts, start: Start):
    start.may_clean_up.set()
    starts.stop("other")
    starts.stop("m")
    starts.stop("m")
    assert await start.task == 0
    assert start.clean


async def test_a_cancellation_stays_one(starts: Starts, start: Start):
    start.may_clean_up.set()
    start.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start.task
    assert start.clean


@pytest.mark.parametrize("stop_first", [True, False])
async def test_a_cancellation_beside_a_stop_is_not_lost(starts: Starts, start: Start, stop_first: bool):
    actions = [lambda: starts.stop("m"), start.task.cancel]
    for act in actions if stop_first else reversed(actions):
        act()
        await asyncio.sleep(0)
    assert not start.task.done()
    start.may_clean_up.set()
    with pytest.raises(asyncio.CancelledError):
        await start.task
    assert start.clean


async def test_close_waits_for_what_is_cleaned_up(starts: Starts, start: Start):
    closing = asyncio.create_task(starts.close())
    done, _ = await asyncio.wait([closing], timeout=0)
    assert not done
    start.may_clean_up.set()
    await closing
    assert start.clean


async def test_finished_work_whose_waiter_was_cancelled():
    async def fail() -> None:
        raise ValueError

    work = asyncio.create_task(finish(fail()))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    with pytest.raises(ValueError):
        await finish(fail())
