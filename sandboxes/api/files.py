"""Files on the wire: what a read answers, and the one request whose body is taken as it comes.

Django would take a body to disk before any view runs, and before anyone knows whether its sender may write at all. So ``POST .../fs`` is a
small ASGI
application ahead of Django, with the same authentication, lifecycle and problems.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import structlog
from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope
from django.conf import settings
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

from sandboxes import errors
from sandboxes.api import problems
from sandboxes.api.authentication import authenticate, require_scope
from sandboxes.api.base import query_path
from sandboxes.api.leases import find
from sandboxes.guest.files import FileReader
from sandboxes.guest.protocol import Entry
from sandboxes.lifecycle import transitions, work
from sandboxes.lifecycle.current import hub
from sandboxes.lifecycle.threads import in_thread
from sandboxes.models import Sandbox

log = structlog.get_logger(__name__)
TEXT = "text/plain; charset=utf-8"


def file_response(found: FileReader | list[Entry]) -> HttpResponseBase:
    """A file's bytes as they are, or a directory's names one a line (a newline in a name shows as ``\\n``; an empty directory is one
    newline).
    """
    if isinstance(found, FileReader):
        return FileResponse(found)
    lines = b"\n".join(entry.name.replace(b"\n", b"\\n") for entry in found)
    return HttpResponse(lines + b"\n", content_type=TEXT)


class FileResponse(StreamingHttpResponse):
    """Streams a file of the length that it had when it was opened.

    It ends early, and so visibly broken, when the file got shorter meanwhile.
    """

    def __init__(self, reader: FileReader) -> None:
        super().__init__(_exactly(reader, reader.stat.size), content_type=TEXT, headers={"Content-Length": str(reader.stat.size)})
        self._reader = reader
        self._loop = hub().loop

    def close(self) -> None:
        """Also called when the client went before the first byte, when no iterator would clean up."""
        self._loop.call_soon_threadsafe(self._reader.close)
        super().close()


async def _exactly(reader: FileReader, size: int) -> AsyncIterator[bytes]:
    """Fewer bytes than were told break the answer off. That is no failure of ours, and so none is raised: a tenant can do it at will."""
    left = size
    if left:
        try:
            async for chunk in reader:
                yield chunk[:left]
                left -= len(chunk[:left])
                if not left:
                    break
        except errors.SandboxError as error:
            log.info("a file could not be read to its end", reason=error.detail)


async def contents(reader: FileReader, most: int) -> bytes:
    """A whole file. Raises ``TooLarge`` beyond ``most`` bytes."""
    taken = bytearray()
    try:
        if reader.stat.size <= most:
            async for chunk in reader:
                taken += chunk
                if len(taken) > most:
                    break
        if max(len(taken), reader.stat.size) > most:
            raise errors.TooLarge(f"the file has more than {most} bytes; GET .../fs streams any size")
        return bytes(taken)
    finally:
        await reader.aclose()


async def single(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data


def listing(entries: Sequence[Entry]) -> list[str]:
    """Names for JSON; what is not UTF-8 in them shows as U+FFFD."""
    return [entry.name.decode("utf-8", "replace") for entry in entries]


class FileWrites:
    """The ASGI application behind ``POST /v1/sandbox[es]/{id}/fs?path=``, and others that write a file.

    ``authorize`` gets the scope, in a thread, and returns the sandbox, or raises.
    """

    def __init__(self, authorize: Callable[[HTTPScope], Sandbox]) -> None:
        self._authorize = authorize

    async def __call__(self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        try:
            status, body = 200, await self._write(scope, receive)
            headers: dict[str, str] = {}
        except ClientGone:
            return
        except errors.SandboxError as error:
            status, body, headers = problems.of(error)
        except Exception:
            log.exception("a file write hit a defect")
            status, body, headers = 500, problems.document(500, "an internal error; the log has its cause", "internal"), {}
        content = json.dumps(body).encode()
        headers |= {
            "Content-Type": "application/json" if status == 200 else problems.CONTENT_TYPE,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded, "trailers": False})
        await send({"type": "http.response.body", "body": content, "more_body": False})

    async def _write(self, scope: HTTPScope, receive: ASGIReceiveCallable) -> dict[str, Any]:
        path = query_path(scope["query_string"])
        sandbox = await in_thread(self._authorize, scope)
        if not path:
            raise errors.PathRefused("the query needs a path")
        wrote = await work.write(hub(), sandbox, path, _body(receive))
        return {"path": work.absolute(sandbox, path).decode("utf-8", "replace"), "bytes": wrote.size}


class ClientGone(Exception):
    """The client hung up in the middle of the body."""


def by_key(scope: HTTPScope) -> Sandbox:
    # Joined, as Django does it: two are no key, here as everywhere.
    key = authenticate(b",".join(value for name, value in scope["headers"] if name == b"authorization").decode("latin-1"))
    require_scope(key, "use")
    sandbox = find(key.org, scope["path"].split("/")[3])
    return usable(sandbox)


def usable(sandbox: Sandbox) -> Sandbox:
    work.require_running(sandbox)
    transitions.touch(sandbox)
    return sandbox


async def _body(receive: ASGIReceiveCallable) -> AsyncIterator[bytes]:
    """The body as it comes.

    Raises ``TooLarge`` beyond the limit (our server refuses that at the headers; others do not) and ``ClientGone``.
    """
    taken = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        chunk = message.get("body", b"")
        taken += len(chunk)
        if taken > settings.SANDBOXHUB_MAX_FILE:
            raise errors.TooLarge(f"a file may have {settings.SANDBOXHUB_MAX_FILE} bytes at most")
        if chunk:
            yield chunk
        if not message.get("more_body", False):
            return
