"""The API server's client: the few requests that this engine makes, with bounded retries.

Objects stay the JSON that the server sends. The generated client's models would cost more time than the requests, for the same
dictionaries in the end; what is taken from it is what is hard: credentials of every kind and TLS.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from sandboxes.engine.kubernetes.channels import PROTOCOLS
from sandboxes.engine.kubernetes.config import CONTAINER, KubernetesConfig
from sandboxes.engine.kubernetes.credentials import Credentials
from sandboxes.errors import EngineError, EngineUnavailable

_log = logging.getLogger(__name__)

Json = dict[str, Any]

_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
_RETRY_FOR = 10.0  #: seconds; an API server that restarts is back by then
_RETRY_STATUS = (429, 500, 502, 503, 504)
#: Seconds in which an API server that was away may refuse what it will allow: it answers before it has read the roles.
_ROLES_WITHIN = 10.0
_HANDSHAKE_TIMEOUT = 15.0  #: seconds; what hangs never answers
_WATCH_SECONDS = 300
_WATCH_SILENCE = 120.0  #: seconds; bookmarks come every minute


class Refused(Exception):
    """The API server understood and said no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason  #: ``NotFound``, ``AlreadyExists``, ``Forbidden``, ...; empty when it is not a Status
        self.message = message


class Cluster:
    """One namespace, seen by one set of credentials. Lives on the loop that ``open`` ran on.

    Every method raises ``Refused`` for a clear no, and ``EngineUnavailable`` when the server cannot be asked.
    """

    def __init__(self, config: KubernetesConfig) -> None:
        self._config = config
        self._credentials = Credentials(config.kubeconfig)
        self._session: aiohttp.ClientSession | None = None
        self._core = f"/api/v1/namespaces/{config.namespace}"
        self._away = -math.inf  # when the server could last not be reached, by the loop's clock

    async def open(self) -> None:
        await self._credentials.load()
        # No limit: every terminal and every sandbox in use holds a connection. trust_env: HTTPS_PROXY and NO_PROXY, as in kubectl.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=True)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._credentials.server

    # Requests

    async def version(self) -> str:
        return str((await self._request("GET", "/version"))["gitVersion"])

    async def may(self, verb: str, resource: str) -> bool:
        """Whether these credentials may; ``resource`` such as ``pods`` or ``pods/exec``."""
        kind, _, part = resource.partition("/")
        asked = {"namespace": self._config.namespace, "verb": verb, "resource": kind, "subresource": part}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        review = await self._request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool(review["status"]["allowed"])

    async def create(self, resource: str, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Json:
        return await self._request("POST", f"{self._core}/{resource}", query={"dryRun": "All"} if dry_run else {}, body=manifest)

    async def get(self, resource: str, name: str) -> Json | None:
        """None when there is none."""
        try:
            return await self._request("GET", f"{self._core}/{resource}/{quote(name, safe='')}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    async def list(self, resource: str, selector: str) -> tuple[list[Json], str]:
        """What carries the labels, as of now, and the version to watch from."""
        found = await self._request("GET", f"{self._core}/{resource}", query={"labelSelector": selector})
        return found.get("items") or [], str(found["metadata"]["resourceVersion"])

    async def delete(self, resource: str, name: str, uid: str) -> None:
        """Ask for the end of just this one. It need not be there any more."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._request("DELETE", f"{self._core}/{resource}/{quote(name, safe='')}", body=body)
        except Refused as refused:
            if refused.status not in (404, 409):  # 409: another one has the name by now
                raise

    async def watch(self, resource: str, selector: str, version: str) -> AsyncIterator[Json]:
        """Events from ``version`` on. Ends after some minutes, or when the server wants a new ``list``."""
        query = {
            "watch": "1",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_SILENCE)
        try:
            async with await self._send("GET", f"{self._core}/{resource}", query=query, timeout=timeout) as response:
                if response.status >= 400:
                    raise _refusal(response.status, await response.read())
                rest = bytearray()
                async for block in response.content.iter_any():
                    rest += block
                    *lines, rest = rest.split(b"\n")
                    for line in lines:
                        if line:
                            yield json.loads(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unavailable(error) from error

    async def exec(self, pod: str, command: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        """Start a command in a pod, its stdin, stdout and stderr on a WebSocket of one of ``PROTOCOLS``."""
        query = urlencode(
            [("container", CONTAINER), ("stdin", "true"), ("stdout", "true"), ("stderr", "true"), *(("command", part) for part in command)],
            quote_via=quote,
        )
        url = URL(f"{self._credentials.server}{self._core}/pods/{quote(pod, safe='')}/exec?{query}", encoded=True)
        for attempt in (1, 2):
            seen = self._credentials.renewals
            try:
                async with asyncio.timeout(_HANDSHAKE_TIMEOUT):
                    socket: aiohttp.ClientWebSocketResponse = await self._opened.ws_connect(
                        url,
                        protocols=PROTOCOLS,
                        headers=await self._credentials.headers(),
                        timeout=aiohttp.ClientWSTimeout(ws_close=1),
                        # A heartbeat would close the socket while nobody reads it on purpose.
                        heartbeat=None,
                        max_msg_size=0,
                        **self._transport,
                    )
            except aiohttp.WSServerHandshakeError as error:
                if error.status == 401 and attempt == 1:
                    await self._credentials.renew(seen)
                    continue
                if self._is_too_early(error.status):
                    raise EngineUnavailable("The API server of the cluster has just started.") from error
                raise Refused(error.status, "", f"the API server answered {error.status} to an exec") from error
            except TimeoutError as error:
                # Not the guest's silence: the exec of a frozen one is taken.
                raise EngineUnavailable("The node of the sandbox does not answer.") from error
            except (aiohttp.ClientError, OSError) as error:
                raise self._unavailable(error) from error
            if socket.protocol not in PROTOCOLS:
                await socket.close()
                raise EngineError("The API server speaks no version of the exec protocol that this engine knows.")
            return socket
        raise AssertionError("unreachable")

    # How they are sent

    @property
    def _opened(self) -> aiohttp.ClientSession:
        assert self._session is not None  # noqa: S101  (open ran, or raised)
        return self._session

    @property
    def _transport(self) -> dict[str, Any]:
        found: dict[str, Any] = {"ssl": self._credentials.tls, "proxy": self._credentials.proxy}
        if self._credentials.server_name:
            found["server_hostname"] = self._credentials.server_name
        return found

    async def _request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None) -> Json:
        """Retries what may succeed a moment later. A write is safe to repeat: names are given by us, deletes name a uid."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _RETRY_FOR
        pause = 0.1
        while True:
            seen = self._credentials.renewals
            failure: Refused | EngineUnavailable
            wait = pause * random.uniform(0.5, 1.5)  # noqa: S311
            try:
                async with await self._send(method, path, query=query, body=body, timeout=_REQUEST_TIMEOUT) as response:
                    text = await response.read()
                    if response.status < 400:
                        found: Json = json.loads(text)
                        return found
                    failure = _refusal(response.status, text)
                    wait = max(wait, _seconds(response.headers.get("Retry-After", "")))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failure = self._unavailable(error)
            if isinstance(failure, Refused):
                if failure.status == 401 and self._credentials.renewals == seen and pause == 0.1:
                    await self._credentials.renew(seen)
                elif failure.status not in _RETRY_STATUS and not self._is_too_early(failure.status):
                    raise failure
            if loop.time() + wait > until:
                if isinstance(failure, Refused) and failure.status >= 500:
                    raise EngineUnavailable(f"The API server of the cluster failed: {failure.message}") from failure
                raise failure
            await asyncio.sleep(wait)
            pause = min(pause * 2, 2.0)

    def _unavailable(self, error: BaseException) -> EngineUnavailable:
        self._away = asyncio.get_running_loop().time()
        _log.warning("the API server cannot be reached: %s", str(error) or type(error).__name__)
        return EngineUnavailable("The API server of the cluster cannot be reached.")

    def _is_too_early(self, status: int) -> bool:
        """Whether an answer says nothing yet about what is allowed."""
        return status == 403 and asyncio.get_running_loop().time() < self._away + _ROLES_WITHIN

    async def _send(
        self, method: str, path: str, *, query: Mapping[str, str] | None, timeout: aiohttp.ClientTimeout, body: Any = None
    ) -> aiohttp.ClientResponse:
        return await self._opened.request(
            method,
            f"{self._credentials.server}{path}",
            params=query,
            json=body,
            headers=await self._credentials.headers(),
            timeout=timeout,
            allow_redirects=False,
            **self._transport,
        )


def _refusal(status: int, body: bytes) -> Refused:
    """From a Status object, or whatever a proxy said instead."""
    try:
        said = json.loads(body)
        return Refused(status, str(said.get("reason", "")), str(said.get("message", "")))
    except (ValueError, AttributeError):
        return Refused(status, "", f"HTTP {status}")


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else 0.0
