"""A plain HTTP client of the API, and the checks that every answer must pass."""

from __future__ import annotations

import base64
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import requests

PROBLEM = "application/problem+json"


class Api:
    """The API as one key sees it. Paths start behind ``/v1``. Safe to be used by several threads."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        self.key = key
        self._local = threading.local()

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """Every answer is checked for what all have in common."""
        headers = {**({"Authorization": f"Bearer {self.key}"} if self.key else {}), **options.pop("headers", {})}
        session = self._local.__dict__.setdefault("session", requests.Session())
        response: requests.Response = session.request(method, f"{self.url}/v1{path}", headers=headers, timeout=300, **options)
        assert response.status_code != 500, response.text
        if response.status_code < 400:
            assert (response.headers["Cache-Control"], response.headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        elif method != "HEAD":
            check_problem(response)
        return response

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.request("POST", path, **({} if body is None else {"json": body}), **options)

    def delete(self, path: str, **options: Any) -> requests.Response:
        return self.request("DELETE", path, **options)

    def create(self, **members: Any) -> Lease:
        """Lease a sandbox and wait for it to run."""
        response = self.post("/sandboxes", members)
        assert response.status_code == 201, response.text
        body = response.json()
        assert body["status"] == "running", body
        return Lease(self, body["id"], body)

    def connection(self) -> http.client.HTTPConnection:
        """For what a well-behaved client never does."""
        address = urlsplit(self.url)
        assert address.hostname
        return http.client.HTTPConnection(address.hostname, address.port, timeout=120)

    def refuses(self, status: int, code: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        """The request must fail so; the problem."""
        response = self.request(method, path, **options)
        assert (response.status_code, response.json()["code"]) == (status, code), response.text
        problem: dict[str, Any] = response.json()
        return problem


@dataclass
class Lease:
    """A sandbox that an org holds."""

    api: Api
    id: str
    body: dict[str, Any]

    @property
    def path(self) -> str:
        return f"/sandboxes/{self.id}"

    @property
    def container(self) -> str:
        """The name of its container, as the documents tell it (contract.md section 6, row 47)."""
        return f"m-{self.id.removeprefix('m_')}-0001"

    def exec(self, *argv: str, **members: Any) -> dict[str, Any]:
        """Run a command to its end."""
        if argv:
            members["argv"] = list(argv)
        response = self.api.post(f"{self.path}/exec", members)
        assert response.status_code == 200, response.text
        result: dict[str, Any] = response.json()
        check_result(result)
        return result

    def sh(self, command: str, **members: Any) -> str:
        """Run a shell line that must succeed; what it printed."""
        result = self.exec(command=command, **members)
        assert result["exitCode"] == 0, result
        return str(result["stdout"])

    def file(self, path: str | bytes) -> str:
        """The address of a file."""
        return f"{self.path}/fs?path={quote(path, safe='')}"

    def read(self, path: str | bytes) -> bytes:
        response = self.api.get(self.file(path))
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        return response.content

    def write(self, path: str | bytes, data: bytes | Iterator[bytes]) -> dict[str, Any]:
        response = self.api.post(self.file(path), data=data)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def end(self, *, purge: bool = False) -> None:
        response = self.api.delete(self.path, params={"purge": "1"} if purge else {})
        assert response.status_code == 204, response.text
        assert response.content == b""

    def status(self) -> dict[str, Any]:
        response = self.api.get(self.path)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body


def check_problem(response: requests.Response) -> None:
    """RFC 9457, as contract.md section 1.3 has it."""
    assert response.headers["Content-Type"] == PROBLEM, response.text
    body = response.json()
    assert body["type"] == "about:blank"
    assert body["status"] == response.status_code
    for member in ("title", "detail", "code"):
        assert isinstance(body[member], str) and body[member], body
    assert "instance" not in body
    assert ("WWW-Authenticate" in response.headers) == (response.status_code == 401)


_SANDBOX = {
    "id": str,
    "org": str,
    "kind": str,
    "class": str,
    "status": str,
    "project": str,
    "image": str,
    "runtime": str,
    "volume": str,
    "createdAt": int,
    "lastUsedAt": int,
    "expiresAt": int,
    "connectedAt": int,
    "error": str,
    "actor": str,
}
_ALWAYS = {"id", "org", "kind", "class", "status", "image", "createdAt", "lastUsedAt"}


def check_sandbox(body: dict[str, Any]) -> None:
    """The fields of contract.md section 1.2, of exactly these types, empty ones left out."""
    assert set(body) <= set(_SANDBOX)
    assert set(body) >= _ALWAYS
    for name, value in body.items():
        assert type(value) is _SANDBOX[name], (name, value)
        assert value not in ("", 0), name
    assert body["kind"] == "sandbox"
    assert body["status"] in ("pending", "running", "parked", "error")


def check_result(body: dict[str, Any]) -> None:
    """An ExecResult, with our additions."""
    known = {
        "exitCode": int,
        "stdout": str,
        "stderr": str,
        "stdoutTruncated": bool,
        "stderrTruncated": bool,
        "timeoutSec": int,
        "signal": int,
        "startError": str,
        "encoding": str,
    }
    assert set(body) >= {"exitCode", "stdout", "stderr", "stdoutTruncated", "stderrTruncated", "timeoutSec"}
    for name, value in body.items():
        assert type(value) is known[name], (name, value)


def decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
