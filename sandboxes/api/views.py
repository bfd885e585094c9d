"""The API over leases: contract.md section 0, under ``/v1/sandbox`` and ``/v1/sandboxes`` alike.

Requests are checked here; everything else is the lifecycle's.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.http import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from sandboxes import errors, policy
from sandboxes.api import results
from sandboxes.api import serializers as wire
from sandboxes.api.base import ApiViewSet, query_path
from sandboxes.api.files import contents, file_response, listing, single
from sandboxes.api.leases import find
from sandboxes.api.schema import CURSOR, FILE_PATH, IDEMPOTENCY, LIMIT, PROJECT, PURGE, STATUS, operation
from sandboxes.guest.commands import RunLost
from sandboxes.guest.files import FileReader
from sandboxes.lifecycle import blind, leases, transitions, work
from sandboxes.lifecycle.current import call, hub
from sandboxes.lifecycle.hub import Hub
from sandboxes.lifecycle.transitions import Wanted
from sandboxes.models import PUBLIC, Sandbox, State

PAGE = 200  #: rows of a list at most

_CURSOR = re.compile(r"([0-9]{1,17})-(m_[0-9a-f]{24})")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class LeaseActions(ApiViewSet):
    """What the REST form and the verbs have in common."""

    def wanted(self, asked: dict[str, Any]) -> Wanted:
        """Check a request for a lease, in the contract's order (section 4.2)."""
        org = self.org()
        kind = policy.sandbox_class(asked.get("class", ""))
        engine = hub().engine
        known = engine.images()
        own = policy.class_images(settings.SANDBOXHUB_CLASS_IMAGES, known[0])
        allowed = (*own.values(), *org.images)
        image = policy.image(asked.get("image", ""), own[kind.name], known, allowed, any_image=engine.any_image)
        project = policy.slug(asked.get("project", ""))
        if kind.attached and not project:
            raise errors.ProjectRequired(f"class {kind.name} is bound to a project: name one")
        if project and not kind.attached:
            raise errors.ProjectNotAllowed(f"class {kind.name} takes no project; dev and desktop do")
        if asked.get("cluster", "").strip():
            raise errors.NotFound("no such cluster")
        runtime = policy.runtime(asked.get("runtime", ""), tuple(engine.runtimes), org.runtimes, volume=kind.attached)
        replay = self.request.headers.get("Idempotency-Key")
        if replay is not None and not _IDEMPOTENCY_KEY.fullmatch(replay):
            raise errors.InvalidRequest("Idempotency-Key: 1 to 255 printable ASCII characters")
        return Wanted(kind, project, image, runtime, asked.get("ttlSec"), self.actor(), replay)

    def execute(self, sandbox: Sandbox, asked: dict[str, Any]) -> Response:
        """Run a command and answer its result."""
        most = settings.SANDBOXHUB_EXEC_TIMEOUT
        timeout = min(asked["timeoutSec"], most) if asked.get("timeoutSec", 0) > 0 else most
        secrets = blind.spellings(asked.get("blind", []))
        order = work.Order(
            argv=_argv(asked),
            stdin=asked.get("stdin", "").encode(),
            directory=asked.get("dir", ""),
            env=asked.get("env", {}),
            timeout=timeout,
            margin=len(secrets[0]) if secrets else 0,
        )
        work.require_running(sandbox)
        transitions.touch(sandbox)
        show = results.Shown(timeout=timeout, encoding=asked.get("encoding", ""), secrets=secrets)
        try:
            result = call(work.execute, sandbox, order)
        except RunLost as lost:
            raise show.unknown(lost) from lost
        transitions.touch(sandbox)
        return Response(show.answer(result))

    def end_lease(self, sandbox: Sandbox, *, purge: bool) -> Response:
        leases.end(sandbox, reason="ended by its holder", actor=self.actor(), purge=purge)
        return Response(status=204)


class SandboxViewSet(LeaseActions):
    """The REST form."""

    scopes = {"list": "read", "create": "manage", "retrieve": "read", "destroy": "manage", "exec": "use", "fs": "use"}

    @property
    def allowed_methods(self) -> list[str]:
        """For ``Allow``: a file's POST is served, though not by Django (``files.FileWrites``)."""
        methods: list[str] = super().allowed_methods
        return [*methods, "POST"] if self.action_map.get("get") == "fs" else methods

    @operation(
        "get_sandbox",
        "The sandboxes that this org holds, newest first",
        answers={200: wire.SandboxListOut},
        parameters=[PROJECT, STATUS, LIMIT, CURSOR],
    )
    def list(self, request: Request) -> Response:
        rows = Sandbox.objects.select_related("org", "volume").filter(org=self.org(), state__in=PUBLIC)
        if project := self.query("project"):
            slug = policy.slug(project)
            rows = rows.filter(project_slug=slug) if slug else rows.none()
        if status := self.query("status"):
            rows = rows.filter(state=status) if status in PUBLIC else rows.none()
        if cursor := self.query("cursor"):
            rows = rows.filter(_after(cursor))
        limit = _limit(self.query("limit"))
        page = list(rows[: limit + 1])
        body: dict[str, Any] = {"sandboxes": wire.SandboxOut(page[:limit], many=True).data}
        if len(page) > limit:
            body["next"] = _cursor(page[limit - 1])
        return Response(body)

    @operation(
        "post_sandbox",
        "Lease a sandbox, or resume the one that holds the project",
        body=wire.SandboxIn,
        answers={201: wire.SandboxOut},
        parameters=[IDEMPOTENCY],
    )
    def create(self, request: Request) -> Response:
        sandbox = leases.create(self.org(), self.wanted(self.payload(wire.SandboxIn)))
        return Response(wire.SandboxOut(sandbox).data, status=201)

    @operation("get_sandbox_by_id", "One sandbox", answers={200: wire.SandboxOut})
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(wire.SandboxOut(find(self.org(), pk)).data)

    @operation("delete_sandbox_by_id", "End a sandbox; purge=1 deletes its volume, too", answers={204: None}, parameters=[PURGE])
    def destroy(self, request: Request, pk: str) -> Response:
        return self.end_lease(find(self.org(), pk), purge=request.query_params.get("purge") == "1")

    @operation("post_sandbox_by_id_exec", "Run a command", body=wire.ExecIn, answers={200: wire.ResultOut})
    def exec(self, request: Request, pk: str) -> Response:
        asked = self.payload(wire.ExecIn)
        return self.execute(find(self.org(), pk), asked)

    @operation(
        "get_sandbox_by_id_fs", "Read a file as it is, or list a directory, one name a line", answers={200: bytes}, parameters=[FILE_PATH]
    )
    def fs(self, request: Request, pk: str) -> HttpResponseBase:
        sandbox = find(self.org(), pk)
        work.require_running(sandbox)
        transitions.touch(sandbox)
        return file_response(call(work.look, sandbox, query_path(request.META["QUERY_STRING"].encode("latin-1")) or b""))


class VerbViewSet(LeaseActions):
    """The verbs: the same operations, with the id in the body."""

    scopes = {"lease": "manage", "run": "use", "read": "use", "write": "use", "stop": "use", "end": "manage"}

    def held(self, asked: dict[str, Any]) -> Sandbox:
        return find(self.org(), asked.get("id", ""))

    @operation(
        "lease_sandbox", "Lease a sandbox, or resume one", body=wire.LeaseIn, answers={200: wire.LeasedOut}, parameters=[IDEMPOTENCY]
    )
    def lease(self, request: Request) -> Response:
        asked = self.payload(wire.LeaseIn)
        try:
            named = find(self.org(), asked.get("id", ""))
        except errors.NotFound:
            named = None
        if named is not None and named.state == State.RUNNING:
            return Response(wire.LeasedOut(leases.resume(named, asked.get("ttlSec"))).data)
        return Response(wire.LeasedOut(leases.create(self.org(), self.wanted(asked))).data)

    @operation("run_in_sandbox", "Run a command in a sandbox that you hold", body=wire.RunIn, answers={200: wire.ResultOut})
    def run(self, request: Request) -> Response:
        asked = self.payload(wire.RunIn)
        return self.execute(self.held(asked), asked)

    @operation("read_sandbox_file", "Read a file, or list a directory", body=wire.PathIn, answers={200: wire.BlobOut})
    def read(self, request: Request) -> Response:
        asked = self.payload(wire.PathIn)
        sandbox = self.held(asked)
        path = asked.get("path", "").encode()
        work.require_running(sandbox)
        transitions.touch(sandbox)
        found = call(_whole, sandbox, path)
        shown = work.absolute(sandbox, path).decode()
        if isinstance(found, bytes):
            return Response({"path": shown, "dir": False, "data": base64.b64encode(found).decode()})
        return Response({"path": shown, "dir": True, "entries": listing(found)})

    @operation("write_sandbox_file", "Write a file", body=wire.WriteIn, answers={200: wire.WroteOut})
    def write(self, request: Request) -> Response:
        asked = self.payload(wire.WriteIn)
        sandbox = self.held(asked)
        path = asked.get("path", "").encode()
        work.require_running(sandbox)
        transitions.touch(sandbox)
        wrote = call(work.write, sandbox, path, single(asked.get("data", b"")))
        return Response({"path": work.absolute(sandbox, path).decode(), "bytes": wrote.size})

    @operation("stop_run", "Stop what a sandbox runs, and keep it", body=wire.IdIn, answers={200: wire.StoppedOut})
    def stop(self, request: Request) -> Response:
        sandbox = self.held(self.payload(wire.IdIn))
        return Response({"stopped": call(work.stop, sandbox)})

    @operation("end_sandbox", "End a sandbox and release it", body=wire.EndIn, answers={204: None})
    def end(self, request: Request) -> Response:
        asked = self.payload(wire.EndIn)
        return self.end_lease(self.held(asked), purge=asked.get("purge", False))


async def _whole(hub: Hub, sandbox: Sandbox, path: bytes) -> bytes | list[Any]:
    """A file's content, as much as an answer may carry, or a directory's entries."""
    found = await work.look(hub, sandbox, path)
    return await contents(found, settings.SANDBOXHUB_MAX_BODY * 3 // 4) if isinstance(found, FileReader) else found


def _argv(asked: dict[str, Any]) -> list[str]:
    if argv := asked.get("argv"):
        if not argv[0]:
            raise errors.CommandRequired("argv[0] is empty")
        return list(argv)
    if (command := asked.get("command", "")).strip():
        return ["sh", "-c", command]
    raise errors.CommandRequired("give argv or command")


def _limit(text: str) -> int:
    if not text:
        return PAGE
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= PAGE:
        raise errors.InvalidRequest(f"limit: a whole number from 1 to {PAGE}")
    return int(text)


def _cursor(last: Sandbox) -> str:
    return f"{(last.created_at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)}-{last.pk}"


def _after(cursor: str) -> Q:
    """The rows behind the one that ``cursor`` names, in the list's order."""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise errors.InvalidRequest("cursor: not one that a list gave out")
    created = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(match[1]))
    return Q(created_at__lt=created) | Q(created_at=created, pk__lt=match[2])
