"""A server that plays the API server's part in an exec and in a watch, to inject what a real one does only when it breaks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sandboxes.engine.kubernetes import KubernetesConfig
from sandboxes.engine.kubernetes.client import Cluster

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CORE = "/api/v1/namespaces/sandboxes"


class Api:
    """Each request is answered by what a test puts into ``answers`` for its path; all requests are kept."""

    def __init__(self) -> None:
        self.answers: dict[str, Handler] = {}
        self.requests: list[web.Request] = []
        self.protocols = ["v5.channel.k8s.io"]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        answer = self.answers.get(request.path)
        return await answer(request) if answer else status(404, "NotFound", f"no {request.path}")

    def on_exec(self, pod: str, peer: Callable[[web.WebSocketResponse], Awaitable[None]]) -> None:
        """``peer`` is what runs in the pod."""

        async def serve(request: web.Request) -> web.StreamResponse:
            socket = web.WebSocketResponse(protocols=self.protocols, max_msg_size=0, timeout=0.1)
            await socket.prepare(request)
            await peer(socket)
            return socket

        self.answers[f"{CORE}/pods/{pod}/exec"] = serve


def status(code: int, reason: str, message: str = "") -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}, status=code)


def ended(**members: Any) -> bytes:
    """A frame of the status channel."""
    return b"\3" + json.dumps(members).encode()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    played = Api()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", played.handle)
    async with TestServer(application) as server:
        played.url = str(server.make_url("")).rstrip("/")  # type: ignore[attr-defined]
        yield played


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first")
    return path


@pytest.fixture
def config(api: Api, token: Path, tmp_path: Path) -> KubernetesConfig:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": api.url}}],  # type: ignore[attr-defined]
        "users": [{"name": "test", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    guest = tmp_path / "guest"
    guest.write_bytes(bytes(range(256)) * 4096)
    return KubernetesConfig("0123456789ab", "sandboxes", guest, {"runc": "runc"}, "exec:1", kubeconfig=path)


@pytest.fixture
async def cluster(config: KubernetesConfig) -> AsyncIterator[Cluster]:
    cluster = Cluster(config)
    await cluster.open()
    yield cluster
    await cluster.close()
