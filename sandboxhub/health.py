"""What a load balancer or a kubelet asks: ``/healthz`` and ``/readyz``.

They are answered ahead of the gate: who asks them addresses this process by its IP,
over plain HTTP, and has no key. They tell nothing else.
"""

from __future__ import annotations

import asyncio
from typing import Any

from django.db import Error, connection

from sandboxes.lifecycle.threads import in_thread

PATHS = ("/healthz", "/readyz")
_ANSWER_WITHIN = 3.0  #: seconds that the database has

_asking: asyncio.Task[bool] | None = None


async def answer(scope: Any, send: Any) -> None:
    """``/healthz``: the event loop turns. ``/readyz``: and the database answers; else 503."""
    ready = scope["path"] == "/healthz" or await _database_answers()
    status, body = (200, b"ok\n") if ready else (503, b"the database does not answer\n")
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _database_answers() -> bool:
    """One question at a time: a database that hangs must not take a thread for everybody who asks."""
    global _asking
    if _asking is None or _asking.done():
        _asking = asyncio.create_task(in_thread(_ask))
    try:
        async with asyncio.timeout(_ANSWER_WITHIN):
            return await asyncio.shield(_asking)
    except TimeoutError:
        return False


def _ask() -> bool:
    connection.close()  # one that was kept may lead to a file that is not there any more
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return False
    return True
