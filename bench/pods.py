"""The baseline in a cluster: pods and plain exec, by a client that costs as little as the product's own and knows nothing of guests."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

import aiohttp

from bench.bare import BareFailed
from bench.sides import zeros
from sandboxes.engine.kubernetes.channels import PROTOCOLS, STATUS, STDERR, STDIN, STDOUT, parse_status
from sandboxes.engine.kubernetes.credentials import Credentials

_END_OF_STDIN = bytes([255, STDIN])  # of protocol version 5
_GONE_WITHIN = 120.0  #: seconds

Manifest = dict[str, Any]


class ApiServer:
    """The API server of a kubeconfig, on keep-alive connections."""

    def __init__(self, kubeconfig: Path) -> None:
        self._credentials = Credentials(kubeconfig)

    async def open(self) -> None:
        await self._credentials.load()
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=True)
        self._transport: dict[str, Any] = {"ssl": self._credentials.tls, "headers": await self._credentials.headers()}

    async def close(self) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Manifest | None = None) -> Any:
        try:
            async with self._session.request(method, self._credentials.server + path, json=body, **self._transport) as answer:
                if answer.status >= 400:
                    raise BareFailed(f"{method} {path} was answered {answer.status}: {await answer.text()}")
                return await answer.json()
        except aiohttp.ClientError as error:
            raise BareFailed(f"{method} {path}: {error}") from error

    async def watch(self, path: str, query: dict[str, str]) -> AsyncIterator[Manifest]:
        """Events until nobody wants more."""
        url = f"{self._credentials.server}{path}?{urlencode({'watch': '1', **query})}"
        async with self._session.get(url, read_bufsize=1 << 20, **self._transport) as answer:
            async for line in answer.content:
                yield json.loads(line)

    @asynccontextmanager
    async def exec(self, pod: str, argv: tuple[str, ...], *, stdin: bool) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        streams = {"stdout": "true", "stderr": "true", **({"stdin": "true"} if stdin else {})}
        url = f"{self._credentials.server}{pod}/exec?{urlencode([*streams.items(), *(('command', word) for word in argv)])}"
        stream = await self._session.ws_connect(url, protocols=PROTOCOLS, max_msg_size=0, **self._transport)
        try:
            yield stream
        except (aiohttp.ClientError, OSError) as error:
            raise BareFailed(f"{argv}: {error}") from error
        finally:
            # All has been said: a polite close would only cost the baseline time.
            if (transport := stream.get_extra_info("transport")) is not None:
                transport.abort()
            await stream.close()


class Pods:
    """Implements ``bench.sides.Baseline``. ``manifest`` makes the manifest of a pod from its name."""

    part = "until it is Ready"

    def __init__(self, server: ApiServer, namespace: str, manifest: Callable[[str], Manifest]) -> None:
        self._server = server
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._manifest = manifest
        self._pod = ""

    async def open(self) -> None:
        self._pod = await self._start()

    async def close(self) -> None:
        if self._pod:
            await self._end(self._pod)

    async def exec(self, *argv: str) -> None:
        await self._take(self._pod, argv)

    async def take(self, *argv: str) -> int:
        return await self._take(self._pod, argv)

    async def give(self, size: int, *argv: str) -> None:
        async with self._server.exec(self._pod, argv, stdin=True) as stream:
            head = bytes([STDIN])
            for chunk in zeros(size):
                await stream.send_bytes(head + chunk)
            await stream.send_bytes(_END_OF_STDIN)
            await _count(stream, argv)

    async def create(self) -> tuple[float, float]:
        began = perf_counter()
        pod = await self._start()
        ready = perf_counter() - began
        await self._take(pod, ("true",))
        whole = perf_counter() - began
        await self._end(pod)
        return ready, whole

    async def _take(self, pod: str, argv: tuple[str, ...]) -> int:
        async with self._server.exec(pod, argv, stdin=False) as stream:
            return await _count(stream, argv)

    async def _start(self) -> str:
        """A new pod when the cluster says that it is Ready; its path."""
        made = await self._server.call("POST", self._pods, self._manifest(f"b-{secrets.token_hex(12)}"))
        async for pod in self._changes(made):
            conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions", ())}
            if conditions.get("Ready") == "True":
                break
        return f"{self._pods}/{made['metadata']['name']}"

    async def _end(self, pod: str) -> None:
        deleted = await self._server.call("DELETE", pod)
        async with asyncio.timeout(_GONE_WITHIN):
            async for _ in self._changes(deleted):
                pass

    async def _changes(self, pod: Manifest) -> AsyncIterator[Manifest]:
        """What becomes of it, until it is gone."""
        meta = pod["metadata"]
        query = {"fieldSelector": f"metadata.name={meta['name']}", "resourceVersion": meta["resourceVersion"]}
        async for event in self._server.watch(self._pods, query):
            if event["type"] == "DELETED":
                return
            yield event["object"]


async def _count(stream: aiohttp.ClientWebSocketResponse, argv: tuple[str, ...]) -> int:
    """The bytes of stdout, until the command has succeeded."""
    count, said = 0, b""
    async for message in stream:
        channel = message.data[0]
        if channel == STDOUT:
            count += len(message.data) - 1
        elif channel == STDERR:
            said += message.data[1:]
        elif channel == STATUS:
            status = parse_status(message.data[1:])
            if status.code != 0:
                raise BareFailed(f"{' '.join(argv)} ended with {status.code}: {status.message} {said.decode(errors='replace')}")
            return count
    raise BareFailed(f"{' '.join(argv)}: the connection was closed")
