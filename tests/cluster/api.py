"""Just enough of a Kubernetes client for the harness itself, which runs before there is any package: the standard library only."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: What a call raises when the API server refuses it (``HTTPError``, with the status as ``code``), is away, or goes away meanwhile.
ERRORS = (OSError, http.client.HTTPException)


class Api:
    """The API server of a kubeconfig that ``tests/cluster/credentials`` wrote. No proxy is used."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        authorities = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authorities)
        self.server = str(cluster["server"])
        self.headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        handler = urllib.request.HTTPSHandler(context=self.tls)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def create(self, path: str, body: dict[str, Any]) -> Any:
        """What was made. What exists already is left as it is: None."""
        try:
            return self._call("POST", path, body)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        return None

    def replace(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("PUT", path, body)

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """The objects of the collection ``path`` as they are now, then each that is made or changes, until the server ends the stream."""
        listing = self.get(path)
        yield from listing["items"]
        with self._open("GET", f"{path}?watch=1&resourceVersion={listing['metadata']['resourceVersion']}", None, 600) as stream:
            for line in stream:
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]
                elif event["type"] == "ERROR":  # too old: list again
                    return

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        with self._open(method, path, body, 60) as answer:
            text = answer.read()
            return json.loads(text) if answer.headers.get_content_type() == "application/json" else text

    def _open(self, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        return self._opener.open(request, timeout=timeout)
