"""Crossing between Django's synchronous half and the event loop that the sandboxes live on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, async_to_sync
from django.db import close_old_connections

T = TypeVar("T")

# Its own threads: work that outlives a request must not sit on the request's thread.
_database = ThreadPoolExecutor(4, thread_name_prefix="database")


async def in_thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run synchronous database work off the loop; a pool's connection is given back at once."""

    def run() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            close_old_connections()

    return await asyncio.get_running_loop().run_in_executor(_database, run)


class LoopThread:
    """An event loop in a thread of its own, for processes that are not the server: commands, tests, a WSGI server."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="sandboxes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def run_on(loop: asyncio.AbstractEventLoop, work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run ``work(*args)`` on ``loop`` from a synchronous thread, holding no connection of a pool meanwhile.

    In a view under ASGI, the client's hang-up cancels it.
    """
    close_old_connections()  # but one in the middle of a transaction
    if getattr(SyncToAsync.threadlocal, "main_event_loop", None) is loop:
        return async_to_sync(work)(*args)

    async def job() -> T:
        return await work(*args)

    future = asyncio.run_coroutine_threadsafe(job(), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
