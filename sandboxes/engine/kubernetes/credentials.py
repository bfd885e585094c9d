"""How this process proves to the API server who it is: a service account's token inside a cluster, a kubeconfig outside."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from sandboxes.errors import EngineError


class Credentials:
    """Of one cluster. Tokens that a file or a program renews are read again: a file once a minute, all after ``renew``."""

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._configuration: Configuration | None = None
        self._tls: ssl.SSLContext | None = None
        self._lock = asyncio.Lock()
        self._renewals = 0

    async def load(self) -> None:
        """Raises ``EngineError``."""
        configuration = Configuration()
        try:
            if self._kubeconfig is None:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                await load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=str(self._kubeconfig), client_configuration=configuration, persist_config=False
                )
            tls = RESTClientObject(configuration).ssl_context
        except (ConfigException, OSError, KeyError, ValueError) as error:
            where = f"the kubeconfig {self._kubeconfig}" if self._kubeconfig else "the service account of this pod"
            advice = "" if self._kubeconfig else " Outside of a cluster set KUBECONFIG."
            raise EngineError(f"There is no way into the cluster by {where}: {error}.{advice}") from error
        self._configuration, self._tls = configuration, tls

    async def renew(self, seen: int) -> None:
        """Load everything anew, because the server refused what ``headers`` gave at renewal number ``seen``."""
        async with self._lock:
            if self._renewals == seen:
                await self.load()
                self._renewals += 1

    @property
    def renewals(self) -> int:
        return self._renewals

    async def headers(self) -> dict[str, str]:
        value = await self._loaded.get_api_key_with_prefix("BearerToken")  # also runs the hook that reads a renewed token
        return {"Authorization": value} if value else {}

    @property
    def server(self) -> str:
        """The API server's URL without a slash at its end."""
        return str(self._loaded.host).rstrip("/")

    @property
    def tls(self) -> ssl.SSLContext:
        assert self._tls is not None  # noqa: S101  (as _loaded)
        return self._tls

    @property
    def server_name(self) -> str | None:
        """The name that the server's certificate must bear when it is not the URL's."""
        return self._loaded.tls_server_name or None

    @property
    def proxy(self) -> str | None:
        return self._loaded.proxy or None

    @property
    def _loaded(self) -> Configuration:
        assert self._configuration is not None  # noqa: S101  (load ran, or raised)
        return self._configuration
