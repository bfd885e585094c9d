"""The client's retries, and the watch: what it knows, tells, and finds again after every interruption."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from harness.waiting import PATIENCE

from sandboxes.engine.kubernetes import client as client_module
from sandboxes.engine.kubernetes.client import Cluster, Refused
from sandboxes.engine.kubernetes.watch import Pods
from sandboxes.errors import EngineUnavailable

from .conftest import CORE, Api, status


def pod(name: str, uid: str = "", *, deleting: bool = False, code: int | None = None) -> dict[str, Any]:
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": "Error"}}
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": "1"}
    return {
        "metadata": metadata | ({"deletionTimestamp": "now"} if deleting else {}),
        "spec": {},
        "status": {"containerStatuses": [{"name": "sandbox", "state": state}]},
    }


class Played:
    """Pods of an API server whose watch a test feeds and cuts."""

    def __init__(self, api: Api) -> None:
        self.pods: list[dict[str, Any]] = []
        self.lists = 0
        self.listed = asyncio.Event()
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        api.answers[f"{CORE}/pods"] = self._handle

    def send(self, kind: str, thing: dict[str, Any]) -> None:
        self._events.put_nowait({"type": kind, "object": thing})

    async def cut(self) -> None:
        """End the watch, and wait for the list that follows."""
        self.listed.clear()
        self._events.put_nowait(None)
        await asyncio.wait_for(self.listed.wait(), PATIENCE)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            self.listed.set()
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": self.pods})
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await self._events.get()) is not None:
            text = json.dumps(event).encode() + b"\n"
            await response.write(text[:10])  # events do not come in one piece each
            await response.write(text[10:])
        return response


class Deaths:
    def __init__(self) -> None:
        self.told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def __call__(self, dead: Any, reason: str) -> None:
        self.told.put_nowait((dead["metadata"]["name"], reason))

    async def next(self) -> tuple[str, str]:
        return await asyncio.wait_for(self.told.get(), PATIENCE)


@pytest.fixture
def played(api: Api) -> Played:
    return Played(api)


@pytest.fixture
def deaths() -> Deaths:
    return Deaths()


@pytest.fixture
async def pods(cluster: Cluster, played: Played, deaths: Deaths) -> AsyncIterator[Pods]:
    played.pods = [pod("a"), pod("dead", code=1)]
    pods = Pods(cluster, "x=y", deaths)
    await pods.open()
    yield pods
    await pods.close()


async def changed(pods: Pods, name: str, played: Played, kind: str, thing: dict[str, Any]) -> None:
    with pods.follow(name) as change:
        played.send(kind, thing)
        await asyncio.wait_for(change.wait(), PATIENCE)


async def test_a_death_is_told_once(pods: Pods, played: Played, deaths: Deaths):
    played.send("MODIFIED", pod("a", code=137))
    assert await deaths.next() == ("a", "its first process was killed")
    await changed(pods, "a", played, "MODIFIED", pod("a", code=137, deleting=True))
    await changed(pods, "a", played, "DELETED", pod("a", code=137, deleting=True))
    assert pods.get("a") is None
    assert deaths.told.empty()


async def test_a_pod_that_was_dead_at_first_sight_is_no_news(pods: Pods, played: Played, deaths: Deaths):
    await changed(pods, "dead", played, "DELETED", pod("dead", code=1))
    assert deaths.told.empty()


async def test_a_deletion_without_notice(pods: Pods, played: Played, deaths: Deaths):
    played.send("DELETED", pod("a"))
    assert await deaths.next() == ("a", "somebody deleted its pod")


async def test_an_end_that_was_asked_for_is_no_news(pods: Pods, played: Played, deaths: Deaths):
    pods.expect_end("uid-a")
    await changed(pods, "a", played, "MODIFIED", pod("a", deleting=True))
    await changed(pods, "a", played, "DELETED", pod("a", deleting=True))
    assert deaths.told.empty()


async def test_a_later_pod_of_the_same_name_is_another(pods: Pods, played: Played, deaths: Deaths):
    pods.expect_end("uid-a")
    await changed(pods, "a", played, "MODIFIED", pod("a", "second"))
    await changed(pods, "b", played, "ADDED", pod("b"))
    played.send("DELETED", pod("a"))
    played.send("MODIFIED", pod("a", "second", code=3))
    assert await deaths.next() == ("a", "its first process ended with exit code 3")


async def test_what_an_interrupted_watch_missed_is_found(pods: Pods, played: Played, deaths: Deaths):
    played.pods = [pod("new")]
    await played.cut()
    assert await deaths.next() == ("a", "somebody deleted its pod")
    assert played.lists == 2
    await changed(pods, "new", played, "MODIFIED", pod("new"))  # and it watches again
    assert pods.get("new") is not None


async def test_a_version_that_is_too_old_asks_for_a_new_list(pods: Pods, played: Played, deaths: Deaths):
    played.pods = []
    played.listed.clear()
    played.send("ERROR", {"kind": "Status", "code": 410})
    await asyncio.wait_for(played.listed.wait(), PATIENCE)
    assert (await deaths.next())[0] == "a"


async def test_a_failing_server_is_asked_again(api: Api, cluster: Cluster):
    answers = [status(503, ""), status(429, "TooManyRequests"), web.json_response({"gitVersion": "v1.34.4"})]

    async def flaky(_: web.Request) -> web.Response:
        return answers.pop(0)

    api.answers["/version"] = flaky
    assert await cluster.version() == "v1.34.4"


async def test_a_no_is_not_asked_twice(api: Api, cluster: Cluster):
    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", "you may not")

    api.answers["/version"] = no
    with pytest.raises(Refused, match="you may not"):
        await cluster.version()
    assert len(api.requests) == 1


def restarting(api: Api, path: str, restarted: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
    """Connections break; then the server is back, but knows no roles yet; then it is as ``restarted``."""
    breaks = 2  # aiohttp itself tries once more

    async def broken(request: web.Request) -> web.Response:
        nonlocal breaks
        breaks -= 1
        assert request.transport is not None
        request.transport.abort()
        if breaks == 0:
            api.answers[path] = without_roles
        return status(500, "")

    async def without_roles(_: web.Request) -> web.Response:
        api.answers[path] = restarted
        return status(403, "Forbidden", "no roles")

    api.answers[path] = broken


async def test_a_server_that_has_just_started_refuses_too_much(api: Api, cluster: Cluster):
    async def version(_: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.34.4"})

    restarting(api, "/version", version)
    assert await cluster.version() == "v1.34.4"


async def test_a_server_that_was_away_may_still_mean_no(api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "_ROLES_WITHIN", 0.3)

    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", "you may not")

    restarting(api, "/version", no)
    with pytest.raises(Refused, match="you may not"):
        await cluster.version()


async def test_an_exec_on_a_server_that_has_just_started(api: Api, cluster: Cluster):
    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", "you may not")

    restarting(api, f"{CORE}/pods/m/exec", no)
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            await cluster.exec("m", ["true"])


async def test_a_server_that_stays_broken(api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "_RETRY_FOR", 0.3)

    async def broken(_: web.Request) -> web.Response:
        return status(500, "InternalError", "etcdserver: request timed out")

    api.answers["/version"] = broken
    with pytest.raises(EngineUnavailable, match="etcdserver"):
        await cluster.version()
    assert len(api.requests) > 1
