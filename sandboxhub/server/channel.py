"""One client connection that speaks HTTP/1.1: framing by Twisted's parser, our answers to what it rejects, time limits, back-pressure."""

# mypy: disable-error-code="no-untyped-call"

import enum
import logging
import time
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.protocols.basic import LineReceiver
from twisted.protocols.policies import ProtocolWrapper
from twisted.web.http import HTTPChannel, HTTPFactory
from zope.interface import implementer  # type: ignore[import-untyped]

from sandboxhub.server import flow, problems, scope
from sandboxhub.server.request import Request
from sandboxhub.server.types import Scope

if TYPE_CHECKING:
    from sandboxhub.server.server import HubServer

logger = logging.getLogger(__name__)
PIPELINE_HIGH = 16 * 1024  # bytes of further requests that may wait behind one that runs
LINGER_IDLE = 5.0  # seconds of silence after the last answer, before the connection is closed for good
LINGER_TOTAL = 30.0
LENGTH_DIGITS = 18


class Phase(enum.Enum):
    IDLE = "between requests"
    HEADERS = "a request's head is coming"
    BODY = "its body is coming"
    RUNNING = "all of it is here, the answer is not"
    CLOSING = "our side has ended, what comes is dropped"


class HubChannel(HTTPChannel):
    """Requests are handled one at a time: the next one of a pipeline is parsed when the one before is answered."""

    factory: "HubHTTPFactory"
    transport: Any
    requests: list[Request]
    requestFactory = Request  # type: ignore[assignment]
    _networkProducer: Any
    _command: Any
    _path: Any
    _version: Any
    maxHeaders = 200
    totalHeadersSize = 32 * 1024
    MAX_LENGTH = 16 * 1024
    persistent: bool = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = flow.Gate()
        self.phase = Phase.IDLE
        self._holds: set[str] = set()  # why reading is paused
        self._pending_next = False  # a further request waits for the answer before it to drain
        self._linger_end = 0.0
        self._stall = flow.Stall()

    @property
    def server(self) -> "HubServer":
        return self.factory.server

    @property
    def closing(self) -> bool:
        return self.phase is Phase.CLOSING

    def connectionMade(self) -> None:
        super().connectionMade()
        if hasattr(self.transport, "setTcpKeepAlive"):
            self.transport.setTcpKeepAlive(1)
        self.server.channels.add(self)
        self._enter(Phase.IDLE)

    def _enter(self, phase: Phase) -> None:
        settings = self.server.settings
        self.phase = phase
        limits = {Phase.IDLE: settings.idle_seconds, Phase.HEADERS: settings.header_seconds, Phase.BODY: settings.idle_seconds}
        self.setTimeout(LINGER_IDLE if self.closing else limits.get(phase))

    def timeoutConnection(self) -> None:
        if self.phase is Phase.HEADERS:
            self.reject(408, "The request's headers did not come in time.")
        elif self.phase is Phase.BODY and not self._holds:
            self.reject(408, "The request's body did not come in time.")
        elif self.phase is Phase.BODY or (self.closing and flow.unsent(self.transport)):
            self._enter(self.phase)  # the wait is ours, or the client still reads: check() ends it when nothing moves
        elif self.closing:
            self.abort()
        else:
            self.linger()

    def check(self) -> None:
        """Called every other second: what a connection that is not read, or not written, can't notice by itself."""
        if self._holds and flow.peer_gone(self.transport):
            self.abort()
        elif self._stall.seconds(self.transport) > self.server.settings.stall_seconds:
            logger.info("dropping %s: it takes nothing of its response", self.getPeer())
            self.abort()

    # input

    def dataReceived(self, data: bytes) -> None:
        if self.closing:
            if time.monotonic() > self._linger_end:
                self.abort()
            else:
                self.resetTimeout()
            return
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEADERS)
        elif self.phase is Phase.BODY:
            self.resetTimeout()
        LineReceiver.dataReceived(self, data)  # HTTPChannel's would reset the time limit with every byte of a head

    def lineReceived(self, line: bytes) -> None:
        if self.closing:
            return
        if self._receivedHeaderSize + len(line) > self.totalHeadersSize:
            self.reject(431, "The request's headers are too large.")
        else:
            super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        if self.requests:
            self.reject(431, "A header of the request is too long.")
        else:
            self.reject(414, "The request line is too long.")

    def headerReceived(self, line: bytes) -> bool:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if self._receivedHeaderCount >= self.maxHeaders:
            self.reject(431, "The request has too many headers.")
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            self.reject(501, "The only transfer coding that is understood is chunked.")
        elif name == b"content-length" and value.isdigit() and len(value) > LENGTH_DIGITS:
            self.reject(413, "The body of this request is too large.")
        elif any(byte < 0x20 and byte != 0x09 or byte == 0x7F for byte in value):
            self.reject(400, "A header of the request has characters that are not allowed.")
        else:
            return bool(super().headerReceived(line)) and not self.closing
        return False

    def allHeadersReceived(self) -> None:
        request, length = self.requests[-1], self.length
        if length != 0:
            self._enter(Phase.BODY)
        try:
            request.begin(self._command, self._path, self._version, length)
        except scope.BadRequest as error:
            self.reject(error.status, error.detail)
        except Exception:  # noqa: BLE001  whatever breaks here must not leave the client without an answer
            logger.exception("a request could not be started")
            self.reject(500, "The server failed to handle this request.")

    def allContentReceived(self) -> None:
        super().allContentReceived()
        if not self.closing:
            self._enter(Phase.RUNNING)

    def rawDataReceived(self, data: bytes) -> None:
        if self.closing:
            return
        if not self._handlingRequest:
            super().rawDataReceived(data)
            return
        self._dataBuffer.append(data)
        if sum(map(len, self._dataBuffer)) > PIPELINE_HIGH:
            self.hold("pipeline")

    def hold(self, reason: str) -> None:
        """Stop reading from the client, for one more reason."""
        self._holds.add(reason)
        self._networkProducer.pauseProducing()

    def release(self, reason: str) -> None:
        """Read again, when no other reason is left."""
        self._holds.discard(reason)
        if not self._holds:
            self.resetTimeout()
            self._networkProducer.resumeProducing()

    # output: the transport calls these when its buffer fills and drains

    def pauseProducing(self) -> None:
        self._waitingForTransport = True
        self.gate.pauseProducing()

    def resumeProducing(self) -> None:
        self._waitingForTransport = False
        self.gate.resumeProducing()
        if self._pending_next:
            self._pending_next = False
            self._next_request()

    def stopProducing(self) -> None:
        self.gate.resumeProducing()

    # ends

    def requestDone(self, request: Request) -> None:
        self.requests.remove(request)
        if not self.persistent or self.server.draining:
            self.linger()
        elif self._waitingForTransport:
            self._pending_next = True  # a client that sends requests and reads no answers gets no more of them made
        else:
            self._next_request()

    def _next_request(self) -> None:
        self._handlingRequest = False
        self._enter(Phase.IDLE)
        data, self._dataBuffer = b"".join(self._dataBuffer), []
        self.release("pipeline")
        self.setLineMode(data)

    def reject(self, status: int, detail: str) -> None:
        """Answer a request in the server's own name and end the connection. One whose answer has begun can only be cut off."""
        body = not (self.requests and self.requests[-1].is_head)
        self._answer(status, problems.problem(status, detail, body=body))

    def go_away(self) -> None:
        """As `reject`, for a request that a draining server can't finish."""
        body = not (self.requests and self.requests[-1].is_head)
        self._answer(503, problems.going_away(body=body))

    def _answer(self, status: int, response: bytes) -> None:
        if self.closing:
            return
        request = self.requests[-1] if self.requests else None
        if request is not None and request.response is not None and request.response.started:
            self.abort()
            return
        self.transport.write(response)
        if request is not None:
            request.refused(status)
        self.linger()

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.reject(400, "The request is malformed.")

    def linger(self) -> None:
        """Send what waits, end our side, and drop what the client still sends, for a while: its answer must not be lost to a reset."""
        if self.closing:
            return
        self._linger_end = time.monotonic() + LINGER_TOTAL
        self._enter(Phase.CLOSING)
        self._holds.clear()
        flow.half_close(self.transport)

    @property
    def sending(self) -> bool:
        """Whether an answer is not yet all with the client."""
        return bool(flow.unsent(self.transport))

    def abort(self) -> None:
        """Reset the connection."""
        self.transport.abortConnection()

    def close_if_idle(self) -> None:
        """The server drains: end a connection that has no complete request head."""
        if self.phase in (Phase.IDLE, Phase.HEADERS):
            self.linger()

    def connectionLost(self, reason: Any = None) -> None:
        self.setTimeout(None)
        self.gate.resumeProducing()
        self.server.channels.discard(self)
        requests, self.requests = self.requests, []
        for request in requests:
            request.abandon()

    def upgrade(self, head: scope.Head, asgi: Scope) -> None:
        """Hand the connection to a websocket."""
        self.setTimeout(None)
        self.server.channels.discard(self)
        self._networkProducer.unregisterProducer()
        socket = self.server.ws_factory.buildProtocol(self.getPeer())
        transport, early = self.transport, self.clearLineBuffer()
        if isinstance(transport, ProtocolWrapper):  # TLS
            transport.wrappedProtocol = socket
        else:
            transport.protocol = socket
        socket.take_over(transport, head, asgi, early)


@implementer(IProtocolNegotiationFactory)
class HubHTTPFactory(HTTPFactory):
    """Makes channels. There is no HTTP/2: it belongs to the proxy."""

    protocol = HubChannel  # type: ignore[assignment]

    def __init__(self, server: "HubServer") -> None:
        super().__init__()
        self.timeOut = None  # the channel has its own time limits
        self.server = server

    def acceptableProtocols(self) -> list[bytes]:
        """What a TLS client may negotiate; without an answer Twisted refuses every client that asks."""
        return [b"http/1.1"]

    def log(self, request: Any) -> None:
        """Twisted's own access log is not used."""
