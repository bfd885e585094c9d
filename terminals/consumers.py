"""The terminal's WebSocket as a Channels consumer."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import structlog
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer

from sandboxes import errors
from sandboxes.api import problems
from sandboxes.lifecycle.current import hub
from sandboxes.lifecycle.threads import in_thread
from terminals import access, tickets, wire
from terminals.session import Session
from terminals.watch import TERMINALS_MOST, Watch

log = structlog.get_logger(__name__)
CLEAN_UP_MOST = 20.0  #: seconds
REASON_MOST = 123  #: bytes of a close reason, by RFC 6455

_watch = Watch()


class TerminalConsumer(AsyncWebsocketConsumer):
    """Checks the handshake, then passes frames between the socket and a ``Session``.

    ``__call__``'s ``finally`` is the only way out: while a program does not read what is typed, ``receive`` blocks, and the server cancels
    the consumer when the client has gone.
    """

    session: Session | None = None
    admitted: access.Admitted | None = None
    serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await _to_its_end(self._clean_up())

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Without Channels' hops to a thread, before every message and at the end, to look after database connections that are not used
        there.
        """
        match message["type"]:
            case "websocket.connect":
                await self.connect()
            case "websocket.receive":
                await self.receive(message.get("text"), message.get("bytes"))
            case "websocket.disconnect":
                raise StopConsumer

    async def connect(self) -> None:
        pk = self.scope["path"].split("/")[3]
        try:
            self.admitted = admitted = await in_thread(access.admit, self.scope, pk)
        except errors.SandboxError as error:
            await self._deny(error)
            raise StopConsumer from error
        if _watch.full(admitted.sandbox.pk):
            await self._deny(access.TooManyTerminals(f"the sandbox has {TERMINALS_MOST} open terminals: close one first"))
            raise StopConsumer
        self.session = Session(hub(), _watch, admitted, send=self._send_output, tell=self._send_text)
        await self.accept()
        self.serving = asyncio.create_task(self._serve(self.session, admitted))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        session, admitted = self.session, self.admitted
        if session is None or admitted is None:
            return
        meaning = bytes_data if text_data is None else wire.parse(text_data, flow=admitted.flow)
        match meaning:
            case wire.Resize():
                session.resize(meaning)
            case wire.Ack():
                session.shown(meaning.bytes)
            case bytes() if meaning:
                await session.type(meaning)

    async def _serve(self, session: Session, admitted: access.Admitted) -> None:
        try:
            if admitted.flow:
                token = await in_thread(tickets.allow_uploads, admitted.ticket)
                await self._send_text(wire.message(upload=f"{self.scope['path'].removesuffix('/ws')}/upload?token={token}"))
            fate = await session.run()
        except Exception:
            log.exception("a terminal failed", lease=session.lease)
            await self.close(wire.Close.LOST, "an internal error")
        else:
            await self.close(int(fate.code), fate.reason.encode()[:REASON_MOST].decode("utf-8", "ignore"))
        await session.clean_up()  # now: the client may take its time to answer the close

    async def _send_output(self, data: bytes) -> None:
        await self.send(bytes_data=data)

    async def _send_text(self, text: str) -> None:
        await self.send(text_data=text)

    async def _deny(self, error: errors.SandboxError) -> None:
        """Answer the handshake with a problem, without an upgrade."""
        if "websocket.http.response" not in (self.scope.get("extensions") or {}):
            await self.close()
            return
        status, body, headers = problems.of(error)
        if status == 401:
            headers["WWW-Authenticate"] = "Ticket"
        content = json.dumps(body).encode()
        headers |= {"Content-Type": problems.CONTENT_TYPE, "Content-Length": str(len(content)), "Cache-Control": "no-store"}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.base_send({"type": "websocket.http.response.start", "status": status, "headers": encoded})
        await self.base_send({"type": "websocket.http.response.body", "body": content})

    async def _clean_up(self) -> None:
        if self.serving is not None:
            self.serving.cancel()
            await asyncio.gather(self.serving, return_exceptions=True)
        if self.session is not None:
            await self.session.clean_up()
        if self.admitted is not None:
            await in_thread(tickets.close, self.admitted.ticket)


async def _to_its_end(work: Any) -> None:
    """Finish ``work``, in ``CLEAN_UP_MOST`` seconds at most, although the server cancels this task meanwhile, perhaps again and again."""

    async def bounded() -> None:
        async with asyncio.timeout(CLEAN_UP_MOST):
            await work

    task = asyncio.create_task(bounded())
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    if error := task.exception():
        log.error("a terminal was not cleaned up", exc_info=error)
