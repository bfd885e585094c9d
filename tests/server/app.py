"""The ASGI application that the server's tests talk to. Each path is one behaviour; /stats tells what the others saw."""

import asyncio
import json
import os
import re
import resource
from collections import Counter
from typing import Any

import django

django.setup()

from sandboxhub.server import on_drain  # noqa: E402
from sandboxhub.server.threads import get_asgi_application  # noqa: E402

MIB = 1024 * 1024
stats: Counter[str] = Counter()
stored: dict[str, int] = {}  # bodies that were taken whole
gates: dict[str, asyncio.Event] = {}
django_application = get_asgi_application()


def body_limit(method: str, path: str) -> int:
    return 1024 * MIB if path.startswith("/big") else 1 * MIB


def event(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


def rss() -> int:
    """Bytes of memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def answer(send: Any, status: int, body: bytes, headers: Any = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def read_all(receive: Any) -> bytes | None:
    """The whole body; None when the client went away first."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message["body"])
        if not message["more_body"]:
            return b"".join(parts)


def shown(scope: Any) -> bytes:
    """The scope as JSON, bytes as latin-1."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    return json.dumps(plain(scope)).encode()


async def http(scope: Any, receive: Any, send: Any) -> None:
    name = re.sub(r"[^a-z_]", "", scope["path"].removeprefix("/big").strip("/").replace("-", "_").split("/")[0]) or "index"
    stats[f"{name}.started"] += 1
    try:
        await globals().get(f"path_{name}", path_index)(scope, receive, send)
    except asyncio.CancelledError:
        stats[f"{name}.cancelled"] += 1
        raise
    finally:
        stats[f"{name}.ended"] += 1
        event(f"{name}.ended").set()


async def path_index(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, shown(scope), [(b"content-type", b"application/json")])


async def path_stats(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, json.dumps({**stats, "rss": rss(), "stored": stored}).encode())


async def path_wait(scope: Any, receive: Any, send: Any) -> None:
    """Answer when the named event has come: the other tests' way to wait without sleeping."""
    await event(scope["path"].split("/")[2]).wait()
    await answer(send, 200, b"came")


async def path_set(scope: Any, receive: Any, send: Any) -> None:
    event(scope["path"].split("/")[2]).set()
    await answer(send, 200, b"set")


async def path_store(scope: Any, receive: Any, send: Any) -> None:
    body = await read_all(receive)
    if body is not None:
        stored[scope["path"]] = len(body)
        await answer(send, 200, b"%d" % len(body))


async def path_drop(scope: Any, receive: Any, send: Any) -> None:
    """Count the body's bytes without keeping them."""
    count = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            stats["drop.disconnected"] += 1
            return
        count += len(message["body"])
        if not message["more_body"]:
            break
    await answer(send, 200, b"%d" % count)


async def path_early(scope: Any, receive: Any, send: Any) -> None:
    """Answer before the body has been read."""
    await answer(send, 409, b"early", [(b"content-length", b"5")])


async def path_unread(scope: Any, receive: Any, send: Any) -> None:
    """Read nothing until told, then everything."""
    await event("unread").wait()
    await path_drop(scope, receive, send)


async def path_late(scope: Any, receive: Any, send: Any) -> None:
    """Answer when told, without having read the body."""
    await event("late").wait()
    await answer(send, 200, b"late")


async def path_echo(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, await read_all(receive) or b"")


async def path_stream(scope: Any, receive: Any, send: Any) -> None:
    """1600 parts of 64 KiB, counted as they are accepted."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1600):
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        stats["stream.parts"] += 1
        if stats["stream.parts"] == 10:
            event("stream.begun").set()
    await send({"type": "http.response.body", "body": b"LAST"})


async def path_large(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, b"y" * (8 * MIB))


async def path_hang(scope: Any, receive: Any, send: Any) -> None:
    """Wait until the client has gone."""
    event("hang.begun").set()
    await read_all(receive)
    assert (await receive())["type"] == "http.disconnect"
    stats["hang.disconnected"] += 1


async def path_forever(scope: Any, receive: Any, send: Any) -> None:
    event("forever.begun").set()
    await asyncio.Event().wait()


async def path_told(scope: Any, receive: Any, send: Any) -> None:
    """A long request that answers what it has when the server drains."""
    told = asyncio.Event()
    unregister = on_drain(told.set)
    event("told.begun").set()
    await told.wait()
    unregister()
    await answer(send, 503, b"draining: the output so far")


async def path_raise(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("a secret of the application")


async def path_silent(scope: Any, receive: Any, send: Any) -> None:
    """Return without an answer."""


async def path_short(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, b"abc", [(b"content-length", b"10")])


async def path_broken(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"abc", "more_body": True})
    raise RuntimeError("in the middle")


async def path_bad_header(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, b"", [(b"x-a", b"1\r\nx-b: 2")])


async def path_nothing(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 204, b"")


async def websocket(scope: Any, receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    name = scope["path"].strip("/").replace("-", "_").split("/")[0]
    stats[f"ws_{name}.started"] += 1
    try:
        await globals()[f"ws_{name}"](scope, receive, send)
    except asyncio.CancelledError:
        stats[f"ws_{name}.cancelled"] += 1
        raise
    finally:
        stats[f"ws_{name}.ended"] += 1
        event(f"ws_{name}.ended").set()


async def ws_deny(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Ticket")]
    await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b'{"detail":', "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b'"no"}'})


async def ws_close_first(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.close"})


async def ws_slow(scope: Any, receive: Any, send: Any) -> None:
    """Neither accept nor deny."""
    event("ws_slow.begun").set()
    stats[f"ws_slow.{(await receive())['code']}"] += 1


async def ws_scope(scope: Any, receive: Any, send: Any) -> None:
    accept = {"type": "websocket.accept", "headers": [(b"x-one", b"1"), (b"x-one", b"2")]}
    if scope["subprotocols"]:
        accept["subprotocol"] = scope["subprotocols"][-1]
    await send(accept)
    await send({"type": "websocket.send", "text": shown(scope).decode()})
    await receive()


async def ws_echo(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message.get("bytes"), "text": message.get("text")})
    stats[f"ws_echo.{message['code']}"] += 1


async def ws_flood(scope: Any, receive: Any, send: Any) -> None:
    """1600 frames of 64 KiB, LAST, and a close code, counted as they are accepted."""
    await send({"type": "websocket.accept"})
    for _ in range(1600):
        await send({"type": "websocket.send", "bytes": b"x" * 65536})
        stats["ws_flood.frames"] += 1
        if stats["ws_flood.frames"] == 10:
            event("ws_flood.begun").set()
    await send({"type": "websocket.send", "text": "LAST"})
    await send({"type": "websocket.close", "code": 4003, "reason": "the sandbox died"})


async def ws_deaf(scope: Any, receive: Any, send: Any) -> None:
    """Read nothing until told, then count."""
    await send({"type": "websocket.accept"})
    await event("ws_deaf").wait()
    while (message := await receive())["type"] == "websocket.receive":
        stats["ws_deaf.bytes"] += len(message["bytes"])


async def ws_code(scope: Any, receive: Any, send: Any) -> None:
    code, reason = scope["path"].split("/")[2:4]
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": int(code), "reason": reason})
    stats[f"ws_code.after_{(await receive())['type']}"] += 1


async def ws_raise(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})
    raise RuntimeError("a secret of the application")


async def lifespan(scope: Any, receive: Any, send: Any) -> None:
    mode = os.environ.get("TEST_LIFESPAN", "good")
    if mode == "none":
        raise ValueError("lifespan is not known here")
    await receive()
    if mode == "refuse":
        await send({"type": "lifespan.startup.failed", "message": "no engine can be used"})
        return
    if mode == "crash":
        raise RuntimeError("boom at start")
    if mode == "hang":
        print("starting", flush=True)
        await asyncio.Event().wait()
    scope["state"]["answer"] = 42
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("lifespan shutdown", flush=True)
    await send({"type": "lifespan.shutdown.complete"})


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http" and scope["path"].startswith("/django/"):
        await django_application({**scope, "path": scope["path"].removeprefix("/django")}, receive, send)
        return
    await {"http": http, "websocket": websocket, "lifespan": lifespan}[scope["type"]](scope, receive, send)
