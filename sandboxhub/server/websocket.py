"""One websocket: denial with a status and a body, back-pressure both ways, close codes with reasons, pings that spare the healthy."""

# mypy: disable-error-code="no-untyped-call"

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet.defer import Deferred

from sandboxhub.server import flow, problems, scope
from sandboxhub.server.response import Response
from sandboxhub.server.types import Message, Scope

if TYPE_CHECKING:
    from sandboxhub.server.server import HubServer

logger = logging.getLogger(__name__)
FRAME_LIMIT = 1024 * 1024  # bytes of a message or frame from the client
EARLY_LIMIT = 64 * 1024  # bytes that a client may send before its handshake is answered
REASON_LIMIT = 123  # bytes of a close reason, by RFC 6455
CLOSE_FLUSH = 30.0  # seconds for the client to take what was sent before a close, and to answer it
UNHEARD_SECONDS = 3.0  # an application that has not taken the news by then that its client has gone is cancelled
HELD_PING_SECONDS = 6.0  # between two pings to a client that is not read
FAIL_LINGER = 5.0  # seconds for a client that broke the protocol to read why
SENDABLE_CODES = {*range(1000, 1015), *range(3000, 5000)} - {1004, 1005, 1006}


class HubWebSocket(WebSocketServerProtocol):
    """autobahn's protocol, driven by ASGI messages. Its camelCase methods are called by autobahn and Twisted."""

    closeHandshakeTimeout = CLOSE_FLUSH  # autobahn's 1 s resets a slow reader before it has what was sent
    factory: "HubWebSocketFactory"
    transport: Any
    _head: scope.Head
    _scope: Scope
    _handshake: "Deferred[Any] | None" = None  # from the request until the application accepts or denies
    _denial: Response | None = None
    _task: "asyncio.Task[None] | None" = None

    @property
    def server(self) -> "HubServer":
        return self.factory.hub

    @property
    def open(self) -> bool:
        return bool(self.state == self.STATE_OPEN)

    # the handshake

    def take_over(self, transport: Any, head: scope.Head, asgi: Scope, early: bytes) -> None:
        """Continue a connection whose handshake request has been read; `early` is what came behind it."""
        self._head, self._scope = head, scope.as_websocket(asgi)
        self._began = self._heard = time.monotonic()
        self._pinged: float | None = None
        self._reading_held = self._deaf = self._told = False
        self.gate, self._stall, self.inbox = flow.Gate(), flow.Stall(), flow.Inbox(self)
        self.server.sockets.add(self)
        self.makeConnection(transport)
        lines = [b"GET %s HTTP/1.1\r\n" % head.target, *(b"%s: %s\r\n" % item for item in head.headers.items), b"\r\n"]
        self._dataReceived(b"".join(lines))
        if early:
            self.dataReceived(early)

    def dataReceived(self, data: bytes) -> None:
        self._heard, self._pinged = time.monotonic(), None
        if self._deaf:
            return
        if self.state == self.STATE_CONNECTING:  # autobahn would look for another handshake in it
            self.data += data
            if len(self.data) > EARLY_LIMIT:
                self._refuse(400, "The client sent data before its handshake was answered.")
            return
        self._dataReceived(data)

    def onConnect(self, request: Any) -> "Deferred[Any]":  # type: ignore[override]
        self._handshake = Deferred()
        self._log("connecting")
        self.inbox.put({"type": "websocket.connect"})
        self._task = self.server.start_application(self, self._scope, self.inbox.get, self.send)
        return self._handshake

    def failHandshake(self, reason: str, code: int = 400, responseHeaders: Any = None) -> None:
        """autobahn found the handshake wrong. Its reason may quote the request, so it is not sent."""
        extra = [(str(name).encode("latin-1"), str(value).encode("latin-1")) for name, value in responseHeaders or []]
        self._answer(problems.problem(code, "The websocket handshake is not valid.", extra=extra))

    def _refuse(self, status: int, detail: str) -> None:
        self._answer(problems.problem(status, detail))

    def _answer(self, response: bytes) -> None:
        """Answer the handshake with a plain response, and end the connection."""
        self._handshake = None
        self._log("rejected")
        self.sendData(response)
        self._end()

    def _end(self, code: int = 1006, reason: str = "") -> None:
        """Our side is finished: drop what still comes, and give the client a moment to read what was sent."""
        self._deaf, self.data = True, b""
        self._tell(code, reason)
        flow.half_close(self.transport)
        self.server.later(FAIL_LINGER, self._hang_up)

    def _hang_up(self) -> None:
        if flow.descriptor_of(self.transport) is None:
            return
        if flow.unsent(self.transport):
            self.server.later(FAIL_LINGER, self._hang_up)  # check() ends it when nothing moves
        else:
            self.transport.abortConnection()

    # from the client

    def onOpen(self) -> None:
        self.transport.registerProducer(self.gate, True)
        self._log("connected")

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if not self._told:
            content: dict[str, Any] = {"bytes": payload} if isBinary else {"text": payload.decode()}
            self.inbox.put({"type": "websocket.receive", **content})

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.gate.resumeProducing()
        self._handshake = None
        self.server.sockets.discard(self)
        self._tell(1005 if code is None else code, reason or "" if wasClean else "")
        self._log("disconnected")

    def _tell(self, code: int, reason: str) -> None:
        """Let the application know, once, that the socket is over. It has a while to end."""
        if self._told or self._task is None:
            return
        self._told = True
        self.inbox.put({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.server.expect_end(self._task)
        self.server.later(UNHEARD_SECONDS, self._cancel_deaf)

    def _cancel_deaf(self) -> None:
        """An application that is stuck with earlier messages does not get to the one that its client has gone."""
        if self._task is not None and not self.inbox.empty:
            self._task.cancel()

    def _fail_connection(self, code: int = 1001, reason: str = "going away") -> None:
        """The client broke the protocol or a limit: say why with a close frame; autobahn would reset the connection."""
        if self._deaf or self.state in (self.STATE_CONNECTING, self.STATE_CLOSED):
            return
        self.failedByMe = True
        self.close(code, reason)
        self._end(code, reason)

    # from the application

    async def send(self, message: Message) -> None:
        """ASGI's send. Returns when the transport has room again."""
        kind = message["type"]
        if self.state == self.STATE_CONNECTING:
            if self._handshake is not None:
                self._answer_handshake(kind, message)
        elif kind == "websocket.send":
            if self.open:
                self._send_message(message)
        elif kind == "websocket.close":
            self.close(message.get("code", 1000), message.get("reason") or "")
        elif self.open:
            raise ValueError(f"An open websocket has no message {kind!r}.")
        await self.gate.wait()

    def _send_message(self, message: Message) -> None:
        data, text = message.get("bytes"), message.get("text")
        if (data is None) == (text is None):
            raise ValueError("A websocket message has either bytes or text.")
        if data is not None:
            self.sendMessage(bytes(data), True)
        else:
            self.sendMessage(str(text).encode(), False)

    def _answer_handshake(self, kind: str, message: Message) -> None:
        if kind == "websocket.http.response.start" and self._denial is None:
            self._denial = Response("GET", "1.1")
            self._denial.start(message)
            self._denied = b""
        elif kind == "websocket.http.response.body" and self._denial is not None:
            self._denied += bytes(message.get("body", b""))
            if not message.get("more_body", False):
                self._answer(b"".join(self._denial.body({"body": self._denied}, close=True)))
        elif self._denial is not None:
            raise ValueError(f"A denial that has begun has no message {kind!r}.")
        elif kind == "websocket.close":
            self._refuse(403, "The server does not accept this websocket.")
        elif kind == "websocket.accept":
            self._accept(message)
        else:
            raise ValueError(f"A websocket that is not accepted has no message {kind!r}.")

    def _accept(self, message: Message) -> None:
        protocol = message.get("subprotocol")
        if protocol is not None and protocol not in self._scope["subprotocols"]:
            raise ValueError(f"The client did not offer the subprotocol {protocol!r}.")
        headers: dict[str, list[str]] = {}
        for name, value in message.get("headers", []):
            headers.setdefault(bytes(name).decode("latin-1"), []).append(bytes(value).decode("latin-1"))
        handshake, self._handshake = self._handshake, None
        assert handshake is not None  # noqa: S101
        handshake.callback((protocol, headers))

    def close(self, code: int | None, reason: str = "") -> None:
        """Start the closing handshake. What was sent before still arrives. `code` None means 1000."""
        code = 1000 if code is None else code
        if code not in SENDABLE_CODES:
            raise ValueError(f"{code} is not a close code that may be sent.")
        if self.open:
            short = reason.encode()[:REASON_LIMIT].decode("utf-8", "ignore").encode()
            self.sendCloseFrame(code=code, reasonUtf8=short or None, isReply=False)

    def application_done(self) -> None:
        """The application has returned or raised."""
        self._told = True
        if self._handshake is not None:
            self._refuse(500, "The server failed to handle this websocket.")
        elif self.open:
            self.close(1011, "The server failed to handle this websocket.")

    # from the server

    def go_away(self) -> None:
        """The server drains: both sides learn it at once; a silent client does not hold the application's clean-up."""
        if self._handshake is not None:
            self._answer(problems.going_away())
        elif self.open:
            self.close(1001, "The server is going away; reconnect.")
        self._tell(1001, "")

    def check(self) -> None:
        """Called every other second: time limits, pings, and what a connection that is not read can't notice by itself."""
        settings, now = self.server.settings, time.monotonic()
        if self._handshake is not None and now - self._began > settings.handshake_seconds:
            self._refuse(503, "The server did not answer the handshake in time.")
        elif self._reading_held and flow.peer_gone(self.transport):
            self._drop("the client went away while it was not read")
        elif self._stall.seconds(self.transport) > settings.stall_seconds:
            self._drop("the client takes nothing of what is sent")
        elif self.open:
            self._ping(now)

    def _ping(self, now: float) -> None:
        settings = self.server.settings
        if self._reading_held and not self.gate.shut:
            # Its pong is not read, but the host of a client that has gone with data unsent answers with a reset. Nothing else would tell.
            if now - self._heard > HELD_PING_SECONDS:
                self._heard, self._pinged = now, None
                self.sendPing()
        elif self.gate.shut:
            self._heard, self._pinged = now, None  # a ping would wait behind what waits: silence proves nothing
        elif self._pinged is not None:
            if now - self._pinged > settings.pong_seconds:
                self._drop("the client does not answer pings")
        elif now - self._heard > settings.ping_seconds:
            self._pinged = now
            self.sendPing()

    def _drop(self, reason: str) -> None:
        self.wasNotCleanReason = reason
        self.dropConnection(abort=True)

    def hold_reading(self) -> None:
        self._reading_held = True
        self.transport.pauseProducing()

    def release_reading(self) -> None:
        self._reading_held = False
        self._heard = time.monotonic()
        self.transport.resumeProducing()

    def _log(self, action: str) -> None:
        client = self._scope["client"]
        details = {"path": self._head.raw_path.decode("ascii"), "client": f"{client[0]}:{client[1]}" if client else None}
        self.server.log_action("websocket", action, details)


class HubWebSocketFactory(WebSocketServerFactory):
    protocol = HubWebSocket  # type: ignore[assignment]

    def __init__(self, hub: "HubServer") -> None:
        super().__init__(server="")
        self.hub = hub
        self.setProtocolOptions(
            allowNullOrigin=True,
            openHandshakeTimeout=0,  # check() has it: it can answer
            maxMessagePayloadSize=FRAME_LIMIT,
            maxFramePayloadSize=FRAME_LIMIT,
        )
