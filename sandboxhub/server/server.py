"""The server: an application's tasks, the connections, the start and the drain."""

# mypy: disable-error-code="no-untyped-call"

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

import daphne.server  # installs the asyncio reactor; must come before any other import of Twisted
from daphne.endpoints import build_endpoint_description_strings
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.logger import FilteringLogObserver, LogLevel, LogLevelFilterPredicate, STDLibLogObserver, globalLogBeginner

from sandboxhub.server import conf, draining
from sandboxhub.server.channel import HubChannel, HubHTTPFactory
from sandboxhub.server.lifespan import Lifespan, StartupError
from sandboxhub.server.types import Application, Receive, Scope, Send
from sandboxhub.server.websocket import HubWebSocket, HubWebSocketFactory

logger = logging.getLogger(__name__)
reactor: Any = installed_reactor  # its type says little of what it can do
BACKLOG = 1024  # connections that the kernel completes before we accept them; Twisted's 50 overflows in a burst
CHECK_SECONDS = 2.0
CANCEL_SECONDS = 10.0  # what a cancelled application has for its clean-up
FLUSH_SECONDS = 5.0  # what clients have to take answers that are complete when the drain ends


class Connection(Protocol):
    """What an application's task belongs to: a request or a websocket."""

    def application_done(self) -> None: ...


class HubServer(daphne.server.Server):
    """Daphne's server under Daphne's command lines, with its own connections and its own end. Time limits come from the settings only."""

    def __init__(self, application: Application, endpoints: Iterable[str] | None = None, **options: Any) -> None:
        super().__init__(application=application, endpoints=[with_backlog(str(endpoint)) for endpoint in endpoints or []], **options)
        self.loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        self.settings = conf.load()
        self.proxy_headers = self.settings.proxy_headers or bool(self.proxy_forwarded_address_header)
        self.lifespan = Lifespan(application)
        self.draining = False
        self.failure: str | None = None  # why the server could not start
        self.channels: set[HubChannel] = set()
        self.sockets: set[HubWebSocket] = set()
        self._applications: dict[asyncio.Task[None], Connection] = {}
        self._deadlines: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        self._ports: list[Any] = []
        self._stopped = False
        self._on_listening: Callable[[str, int], None] | None = None

    @classmethod
    def on_address(
        cls, application: Application, host: str, port: int, on_listening: Callable[[str, int], None] | None = None
    ) -> "HubServer":
        """A server on one TCP address."""
        server = cls(application, build_endpoint_description_strings(host=host, port=port))
        server._on_listening = on_listening
        return server

    @property
    def state(self) -> dict[str, Any]:
        """The lifespan's state, which every scope gets a copy of."""
        return self.lifespan.state

    # start

    def run(self) -> None:
        """Serve until stopped. Raises SystemExit with a message when the server can't start."""
        begin_logging()
        asyncio.set_event_loop(self.loop)
        self.http_factory, self.ws_factory = HubHTTPFactory(self), HubWebSocketFactory(self)  # type: ignore[assignment]
        if self.signal_handlers and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self.loop.add_signal_handler(number, self._on_signal, number)
        starting = self.loop.create_task(self._start())
        starting.add_done_callback(self._started)
        reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromFuture(self.loop.create_task(self._stop(starting))))
        reactor.run(installSignalHandlers=False)
        if self.failure is not None:
            raise SystemExit(self.failure)

    async def _start(self) -> None:
        await self.lifespan.startup()
        for endpoint in self.endpoints:
            try:
                port = await serverFromString(reactor, endpoint).listen(self.http_factory).asFuture(self.loop)
            except CannotListenError as error:
                reason = error.socketError.strerror if isinstance(error.socketError, OSError) else error.socketError
                raise StartupError(f"Cannot listen on {error.interface or '*'}:{error.port}: {reason}") from error
            except OSError as error:
                raise StartupError(f"Cannot listen on {endpoint}: {error.strerror}") from error
            self._ports.append(port)
            self.listen_success(port)
        if self.ready_callable:
            self.ready_callable()
        if self._on_listening is not None:
            for host, number in self.listening_addresses:
                self._on_listening(host, number)
        self._check()

    def _started(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, StartupError):
            self.failure = str(error)
        else:
            logger.error("the server failed to start", exc_info=error)
            self.failure = f"The server failed to start: {error}"
        self.abort_start = True
        self.stop()

    def _check(self) -> None:
        """Every other second: the time limits of connections that nothing happens on."""
        connections: list[HubChannel | HubWebSocket] = [*self.channels, *self.sockets]
        for connection in connections:
            connection.check()
        self.later(CHECK_SECONDS, self._check)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.loop.call_later(seconds, call)

    # applications

    def start_application(self, connection: Connection, scope: Scope, receive: Receive, send: Send) -> asyncio.Task[None]:
        """Run the application for one request or socket; the connection learns when it is done."""
        task = self.loop.create_task(run_application(self.application, scope, receive, send))
        self._applications[task] = connection
        task.add_done_callback(self._application_done)
        return task

    def _application_done(self, task: asyncio.Task[None]) -> None:
        connection = self._applications.pop(task)
        if (deadline := self._deadlines.pop(task, None)) is not None:
            deadline.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the application failed", exc_info=error)
        connection.application_done()

    def expect_end(self, task: asyncio.Task[None]) -> None:
        """The task's client is gone: cancel the task if it does not notice."""
        if not task.done():
            self._deadlines[task] = self.loop.call_later(self.settings.close_seconds, self._cancel_late, task)

    def _cancel_late(self, task: asyncio.Task[None]) -> None:
        logger.warning("an application is cancelled: it still ran %g s after its client had gone", self.settings.close_seconds)
        task.cancel()

    # stop

    def stop(self) -> None:
        """Drain and end. Safe from any thread."""
        self.loop.call_soon_threadsafe(self._begin_stop)

    def _begin_stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            reactor.stop()

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._stopped:
            self._begin_stop()
            return
        self.loop.remove_signal_handler(number)  # the second one: die of it, at once
        os.kill(os.getpid(), number)

    async def _stop(self, starting: asyncio.Task[None]) -> None:
        """Everything between the signal and the end of the event loop."""
        self.draining = True
        starting.cancel()
        for port in self._ports:
            stopped = port.stopListening()
            if stopped is not None:
                await stopped.asFuture(self.loop)
        for socket in list(self.sockets):
            socket.go_away()
        for channel in list(self.channels):
            channel.close_if_idle()
        await self._until_answered(self.settings.drain_seconds)
        if self._applications:
            draining.signal.fire()
            await self._until_answered(self.settings.answer_seconds)
        await self._cancel_rest()
        await self._until(lambda: not any(channel.sending for channel in self.channels), FLUSH_SECONDS)
        await self.lifespan.shutdown()

    async def _until_answered(self, seconds: float) -> None:
        """Wait until no application runs, or the time is over."""
        await self._until(lambda: not self._applications, seconds)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition() and (left := end - time.monotonic()) > 0:
            tasks = list(self._applications)
            if tasks:
                await asyncio.wait(tasks, timeout=min(left, 0.1))
            else:
                await asyncio.sleep(min(left, 0.05))

    async def _cancel_rest(self) -> None:
        rest = list(self._applications)
        if not rest:
            return
        logger.warning("cancelling %d requests and sockets that did not end", len(rest))
        for task in rest:
            task.cancel()
        _, stuck = await asyncio.wait(rest, timeout=CANCEL_SECONDS)
        if stuck:
            logger.error("%d requests and sockets ignore their cancellation", len(stuck))


async def run_application(application: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """One call of the application, as a coroutine that belongs to us whatever it returns."""
    await application(scope, receive, send)


def with_backlog(endpoint: str) -> str:
    """A Twisted endpoint description with our backlog, unless it has one."""
    return f"{endpoint}:backlog={BACKLOG}" if endpoint.startswith("tcp:") and "backlog=" not in endpoint else endpoint


def begin_logging() -> None:
    """Send what Twisted and autobahn report as errors to the standard library's logging; the rest of it is noise."""
    predicate = LogLevelFilterPredicate(LogLevel.error)
    observer: Any = FilteringLogObserver(cast(Any, STDLibLogObserver(__name__)), [cast(Any, predicate)])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=True)
