"""One HTTP request: the application starts at its headers, pulls the body, and is held while the client does not read."""

# mypy: disable-error-code="no-untyped-call"

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from sandboxhub.server import flow, scope
from sandboxhub.server.response import Response
from sandboxhub.server.types import Message

if TYPE_CHECKING:
    from sandboxhub.server.channel import HubChannel

logger = logging.getLogger(__name__)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Body:
    """A request body on its way: the channel feeds it, the application takes from it, and the channel reads no more than is taken."""

    def __init__(self, channel: "HubChannel") -> None:
        self._channel = channel
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._holding = False
        self.received = 0  # bytes, for the limit
        self.ended = False  # all of it has come
        self.taken = False  # the application has the last part
        self.gone = False  # nothing more will come, and nothing can be answered
        self.expect_continue = False

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self._changed.set()
        if len(self._buffer) > flow.READ_HIGH and not self._holding:
            self._holding = True
            self._channel.hold("body")

    def end(self) -> None:
        self.ended = True
        self._changed.set()

    def abandon(self) -> None:
        """The client is gone, or the response complete: receive() gives http.disconnect from now on."""
        self.gone = True
        self._buffer.clear()
        self._changed.set()
        self._release()

    async def receive(self) -> Message:
        """ASGI's receive."""
        while not self.gone:
            if not self.taken and (self._buffer or self.ended):
                return self._take()
            if self.expect_continue and not self.ended:
                self.expect_continue = False
                self._channel.transport.write(CONTINUE)
            self._changed.clear()
            await self._changed.wait()
        return {"type": "http.disconnect"}

    def _take(self) -> Message:
        data = bytes(self._buffer)
        self._buffer.clear()
        self.taken = self.ended
        self._release()
        return {"type": "http.request", "body": data, "more_body": not self.taken}

    def _release(self) -> None:
        if self._holding:
            self._holding = False
            self._channel.release("body")


class Request:
    """What Twisted's channel takes for a request. Its camelCase methods are called by the channel."""

    head: scope.Head | None = None  # from the moment that it was found good
    body: Body
    response: Response | None = None  # from the moment that the application runs

    def __init__(self, channel: "HubChannel", queued: object = False) -> None:
        self.channel = channel
        self.server = channel.factory.server
        self.requestHeaders = scope.HeaderList()
        self.over = False  # answered, refused, or the client is gone: what still comes from either side is dropped
        self._limit = 0
        self._began = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def begin(self, method: bytes, target: bytes, version: bytes, length: int | None) -> None:
        """The headers are complete; `length` is the body's, None when it is chunked. Raises BadRequest."""
        self.head = head = scope.Head.parse(method, target, version, self.requestHeaders)
        self.channel.persistent = head.persistent
        self.body = Body(self.channel)
        asgi = scope.build(
            head,
            self.channel,
            root_path=self.server.root_path,
            proxy_headers=self.server.proxy_headers,
            state=self.server.state,
        )
        if head.upgrades_to_websocket:
            if length != 0:
                raise scope.BadRequest(400, "A websocket handshake has no body.")
            self.over = True
            self.channel.upgrade(head, asgi)
            return
        self._check_size(head, length)
        self._check_expectation(head)
        self.response = Response(head.method, head.version)
        self._task = self.server.start_application(self, asgi, self.body.receive, self.send)

    def _check_size(self, head: scope.Head, length: int | None) -> None:
        self._limit = self.server.settings.body_limit(head.method, head.path)
        if length is not None and length > self._limit:
            raise self._too_large()

    def _too_large(self) -> scope.BadRequest:
        return scope.BadRequest(413, f"The body of this request may have at most {self._limit} bytes.")

    def _check_expectation(self, head: scope.Head) -> None:
        expectation = self.requestHeaders.first(b"expect")
        if expectation is None or head.version != "1.1":
            return
        if expectation.lower() != b"100-continue":
            raise scope.BadRequest(417, "The only expectation that can be met is 100-continue.")
        self.body.expect_continue = True

    # from the channel

    def handleContentChunk(self, data: bytes) -> None:
        if self.over:
            return
        self.body.received += len(data)
        if self.body.received > self._limit:
            error = self._too_large()
            self.channel.reject(error.status, error.detail)
        else:
            self.body.feed(data)

    def requestReceived(self, method: bytes, target: bytes, version: bytes) -> None:
        """The body is complete."""
        if not self.over:
            self.body.end()

    @property
    def is_head(self) -> bool:
        return self.head is not None and self.head.method == "HEAD"

    def refused(self, status: int) -> None:
        """The server has answered this request itself."""
        self.log(status, 0)
        self.abandon()

    def abandon(self) -> None:
        """Nothing that the application still sends matters. It has a while to notice."""
        if self.over:
            return
        self.over = True
        if self._task is not None:
            self.body.abandon()
            self.server.expect_end(self._task)

    # from the application

    async def send(self, message: Message) -> None:
        """ASGI's send. Returns when the transport has room again, except after the last part."""
        if self.over or self.response is None:
            return
        kind = message["type"]
        if kind == "http.response.start":
            self.response.start(message)
        elif kind == "http.response.body":
            self._write(message)
            if not self.response.complete:
                await self.channel.gate.wait()
        else:
            raise ValueError(f"An http response has no message {kind!r}.")

    def _write(self, message: Message) -> None:
        response = self.response
        assert response is not None  # noqa: S101
        if not response.started and (response.wants_close or self.server.draining or not self.body.ended):
            self.channel.persistent = False  # before the body's end it is not known whether the client will send the rest
        parts = response.body(message, close=not self.channel.persistent)
        if parts:
            self.channel.writeSequence(parts)
        if response.complete:
            self._finish()

    def _finish(self) -> None:
        response = self.response
        assert response is not None  # noqa: S101
        self.log(response.status, response.size)
        self.over = True
        self.body.abandon()
        if response.short:
            self.channel.abort()
        else:
            self.channel.requestDone(self)

    def application_done(self) -> None:
        """The application has returned or raised. What it left unanswered is answered here."""
        if self.over or self.response is None:
            return
        if self.response.started:
            logger.error("the application left a response unfinished")
            self.channel.abort()
        elif self.server.draining:
            self.channel.go_away()
        else:
            self.channel.reject(500, "The server failed to handle this request.")

    def log(self, status: int, size: int) -> None:
        """One line of the access log. The query stays out of it: it may hold a ticket."""
        if self.head is None:
            return
        client = scope.address_of(self.channel.getPeer())
        details = {
            "method": self.head.method,
            "path": self.head.raw_path.decode("ascii"),
            "status": status,
            "size": size,
            "time_taken": time.monotonic() - self._began,
            "client": f"{client[0]}:{client[1]}" if client else None,
        }
        self.server.log_action("http", "complete", details)
