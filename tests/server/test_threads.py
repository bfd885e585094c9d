"""Leased request threads."""

import asyncio
import json
import threading

from sandboxhub.server.threads import RequestThread, ThreadPool

from .client import Hub


def test_requests_share_threads(server: Hub) -> None:
    """A client may have its answer, and ask again, a moment before the first request's thread is free: two threads, not twenty."""
    served = [json.loads(server.get("/django/thread").body)["served"] for _ in range(20)]
    assert max(served) >= 5


def test_thread_runs_calls_in_order_and_carries_errors() -> None:
    thread = RequestThread()
    first, second = thread.submit(threading.get_ident), thread.submit(threading.get_ident)
    assert first.result() == second.result() != threading.get_ident()
    assert isinstance(thread.submit(lambda: [][0]).exception(), IndexError)
    thread.shutdown()
    assert not thread.busy


def test_pool_reuses_the_last_and_keeps_no_more_than_its_size() -> None:
    pool = ThreadPool(max_idle=1)
    one, two = pool.lease(), pool.lease()
    assert one is not two
    pool.give_back(one)
    pool.give_back(two)
    assert pool.lease() is one
    one.shutdown()


def test_busy_thread_is_not_leased_again() -> None:
    pool, go = ThreadPool(), threading.Event()
    thread = pool.lease()
    left_over = thread.submit(go.wait)
    pool.give_back(thread)
    other = pool.lease()
    assert other is not thread
    go.set()
    assert left_over.result()
    other.shutdown()


async def test_works_as_an_executor_of_a_loop() -> None:
    thread = RequestThread()
    assert await asyncio.get_running_loop().run_in_executor(thread, threading.get_ident) != threading.get_ident()
    thread.shutdown()
