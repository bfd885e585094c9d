"""Request threads that are leased: Django's ASGI handler without a new thread, and a new database connection, for every request."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import django
from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_started
from django.db import close_old_connections, connections, reset_queries

from sandboxhub.server.types import Receive, Scope, Send

P = ParamSpec("P")
T = TypeVar("T")
MAX_IDLE = 32  # threads kept for the next requests


class RequestThread(Executor):
    """An executor of exactly one thread, which starts with the first call: a request whose body does not come costs no thread.

    The thread is a daemon: a view that is stuck in a blocking call must not keep a stopped server's process alive for ever, as the threads
    of concurrent.futures do.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits, for example one whose request was cancelled."""
        with self._lock:
            return self._pending > 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            result: T | None = None
            error: BaseException | None = None
            if running := future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as raised:  # noqa: BLE001  an executor hands every exception to its future
                    error = raised
            self._called()
            if error is not None:
                future.set_exception(error)
            elif running:
                future.set_result(cast(T, result))

        with self._lock:
            self._pending += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="request", daemon=True)
                self._thread.start()
        self._calls.put(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the thread's database connections and end it after the calls it has. Waits only when asked."""
        self._calls.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        connections.close_all()

    def _called(self) -> None:
        """A call is over; noted before its future tells: who then gives the thread back must not find it busy."""
        with self._lock:
            self._pending -= 1


class ThreadPool:
    """Idle request threads, the one used last first. For one event loop: it is not safe from several threads."""

    def __init__(self, max_idle: int = MAX_IDLE) -> None:
        self._idle: list[RequestThread] = []
        self._max_idle = max_idle

    def lease(self) -> RequestThread:
        return self._idle.pop() if self._idle else RequestThread()

    def give_back(self, thread: RequestThread) -> None:
        """Keep an idle thread; retire one too many, and one that still runs what its cancelled request left."""
        if thread.busy or len(self._idle) >= self._max_idle:
            thread.shutdown(wait=False)
        else:
            self._idle.append(thread)


class PooledASGIHandler(ASGIHandler):
    """Django's handler on leased threads. All sync code of one request runs in one thread, as in the stock handler."""

    chunk_size = 256 << 10  # bytes of a response's body in one message

    def __init__(self) -> None:
        super().__init__()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPool] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        if scope["type"] != "http":
            raise ValueError(f"Django can only handle ASGI/HTTP connections, not {scope['type']}.")
        async with self._thread() as thread, ThreadSensitiveContext(executor=thread):
            await self.handle(scope, receive, send)  # type: ignore[arg-type]

    @contextlib.asynccontextmanager
    async def _thread(self) -> AsyncIterator[RequestThread]:
        loop = asyncio.get_running_loop()
        pool = self._pools.setdefault(loop, ThreadPool())
        thread = pool.lease()
        try:
            yield thread
        finally:
            pool.give_back(thread)


def get_asgi_application() -> PooledASGIHandler:
    """As django.core.asgi's function of this name, with leased threads. Works under any ASGI server."""
    django.setup(set_prefix=False)
    # Django would visit the request's thread before the view, only to find that there is no connection to close: each was closed, or
    # given back to its pool, when the thread's last request finished.
    request_started.disconnect(close_old_connections)
    request_started.disconnect(reset_queries)
    return PooledASGIHandler()
