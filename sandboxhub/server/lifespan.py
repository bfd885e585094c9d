"""The ASGI lifespan protocol: the application's own start and end."""

import asyncio
import logging
from typing import Any

from sandboxhub.server.types import Application, Message

logger = logging.getLogger(__name__)
SHUTDOWN_SECONDS = 30.0


class StartupError(Exception):
    """The server can't start. The message is for the operator."""


class Lifespan:
    """One run of the application's lifespan. An application that does not know the protocol is served without it."""

    def __init__(self, application: Application) -> None:
        self.state: dict[str, Any] = {}
        self._application = application
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self._asked = False  # the application has called receive: it knows the protocol
        self._answer: asyncio.Future[Message] | None = None

    async def startup(self) -> None:
        """Return when the application is ready. Raises StartupError when it says that it can't start, or dies while it starts."""
        self._task = asyncio.ensure_future(self._run())
        answer = await self._exchange("lifespan.startup")
        if answer is not None and answer["type"] == "lifespan.startup.complete":
            self._started = True
            return
        if answer is not None:
            raise StartupError(f"The application refused to start: {answer.get('message') or 'no reason given'}")
        error = None if self._task.cancelled() else self._task.exception()
        if self._asked:
            raise StartupError(f"The application failed to start: {error or 'its lifespan ended early'}") from error
        logger.debug("the application has no lifespan: %s", error)

    async def shutdown(self) -> None:
        """Return when the application has cleaned up; one that is not done after SHUTDOWN_SECONDS is cancelled. Its failure is logged."""
        if self._task is None or self._task.done():
            return
        if not self._started:  # the server was stopped while the application started: it does not listen for more
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=SHUTDOWN_SECONDS)
            return
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                answer = await self._exchange("lifespan.shutdown")
        except TimeoutError:
            logger.error("the application did not shut down in %g s", SHUTDOWN_SECONDS)
            self._task.cancel()
            return
        if answer is not None and answer["type"] == "lifespan.shutdown.failed":
            logger.error("the application failed to shut down: %s", answer.get("message") or "no reason given")
        elif answer is None and not self._task.cancelled() and (error := self._task.exception()):
            logger.error("the application failed to shut down", exc_info=error)

    async def _exchange(self, kind: str) -> Message | None:
        """Send one event and wait for its answer; None when the application ended instead."""
        assert self._task is not None  # noqa: S101
        self._answer = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait({"type": kind})
        both: set[asyncio.Future[Any]] = {self._task, self._answer}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return self._answer.result() if self._answer.done() else None

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        await self._application(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        self._asked = True
        return await self._inbox.get()

    async def _send(self, message: Message) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(message)
