"""The ASGI application: Django, the file writes ahead of it, and the life of the hub and the reaper beside it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sandboxhub.settings")

from sandboxhub.server import on_drain
from sandboxhub.server.threads import get_asgi_application

django_application = get_asgi_application()

# Only now are the apps loaded.
from django.conf import settings

from sandboxes import reaper
from sandboxes.api import files
from sandboxes.api.limits import is_file_write
from sandboxes.errors import SandboxError
from sandboxes.lifecycle import audit, current
from sandboxhub import gate, health
from terminals.consumers import TerminalConsumer
from terminals.urls import TERMINAL_SOCKET
from terminals.views import by_upload_token

file_writes = files.FileWrites(files.by_key)
uploads = files.FileWrites(by_upload_token)
terminal = TerminalConsumer.as_asgi()  # type: ignore[no-untyped-call]


async def application(scope: Any, receive: Any, send: Any) -> None:
    match scope["type"]:
        case "lifespan":
            await lifespan(receive, send)
        case "http" if scope["path"] in health.PATHS:
            await health.answer(scope, send)
        case "http" | "websocket" if (refused := gate.refusal(scope)) is not None:
            await gate.refuse(scope, send, refused)
        case "http" if is_file_write(scope["method"], scope["path"]):
            await (file_writes if scope["path"].endswith("/fs") else uploads)(scope, receive, send)
        case "http":
            await django_application(scope, receive, send)
        case "websocket" if TERMINAL_SOCKET.fullmatch(scope["path"]):
            await terminal(scope, receive, send)
        case _:
            await send({"type": "websocket.close"})


async def lifespan(receive: Any, send: Any) -> None:
    """Prove the engine before the first request; let go of it after the last."""
    await receive()
    try:
        hub = await current.open_hub()
    except SandboxError as error:
        await send({"type": "lifespan.startup.failed", "message": error.detail})
        return
    forget = on_drain(hub.interrupt.give)
    beside = [asyncio.create_task(reaper.run(hub))] if settings.SANDBOXHUB_REAPER else []
    if settings.SANDBOXHUB_EGRESS_PROBE:
        beside.append(asyncio.create_task(audit.run(hub)))
    await send({"type": "lifespan.startup.complete"})
    await receive()
    forget()
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    await current.close_hub()
    await send({"type": "lifespan.shutdown.complete"})
