"""Keys: who is let in, what a scope allows, and that no org sees anything of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.client import Api, Lease
from harness.server import Server

NEVER = "m_0123456789abcdef01234567"
OPERATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "get": ("GET", "/sandboxes/{id}", {}),
    "delete": ("DELETE", "/sandboxes/{id}", {}),
    "purge": ("DELETE", "/sandboxes/{id}?purge=1", {}),
    "exec": ("POST", "/sandboxes/{id}/exec", {"json": {"argv": ["true"]}}),
    "list files": ("GET", "/sandboxes/{id}/fs", {}),
    "read file": ("GET", "/sandboxes/{id}/fs?path=file", {}),
    "read outside": ("GET", "/sandboxes/{id}/fs?path=../x", {}),
    "write file": ("POST", "/sandboxes/{id}/fs?path=file", {"data": b"hostile"}),
    "write outside": ("POST", "/sandboxes/{id}/fs?path=../x", {"data": b"hostile"}),
    "write nowhere": ("POST", "/sandboxes/{id}/fs", {"data": b"hostile"}),
    "run": ("POST", "/sandbox/run", {"json": {"id": "{id}", "command": "true"}}),
    "read": ("POST", "/sandbox/read", {"json": {"id": "{id}", "path": "file"}}),
    "read none": ("POST", "/sandbox/read", {"json": {"id": "{id}", "path": "../x"}}),
    "write": ("POST", "/sandbox/write", {"json": {"id": "{id}", "path": "file", "data": "aGk="}}),
    "write none": ("POST", "/sandbox/write", {"json": {"id": "{id}"}}),
    "stop": ("POST", "/sandbox/stop", {"json": {"id": "{id}"}}),
    "end": ("POST", "/sandbox/end", {"json": {"id": "{id}"}}),
    "end and purge": ("POST", "/sandbox/end", {"json": {"id": "{id}", "purge": True}}),
}
SCOPES = {
    "read": [("GET", "/sandboxes"), ("GET", "/sandboxes/{id}"), ("GET", "/org"), ("GET", "/projects"), ("GET", "/volumes")],
    "use": [
        ("POST", "/sandboxes/{id}/exec"),
        ("GET", "/sandboxes/{id}/fs"),
        ("POST", "/sandboxes/{id}/fs?path=x"),
        ("POST", "/sandbox/run"),
        ("POST", "/sandbox/read"),
        ("POST", "/sandbox/write"),
        ("POST", "/sandbox/stop"),
    ],
    "manage": [
        ("POST", "/sandboxes"),
        ("POST", "/sandbox/lease"),
        ("DELETE", "/sandboxes/{id}"),
        ("POST", "/sandbox/end"),
        ("POST", "/projects"),
        ("DELETE", "/projects/x"),
        ("DELETE", "/volumes/x"),
    ],
}


def answer(api: Api, name: str, pk: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body, without the time, and without what only tells how much of the request's body had come by then."""
    method, path, options = OPERATIONS[name]
    if "json" in options:
        options = {"json": {key: pk if value == "{id}" else value for key, value in options["json"].items()}}
    response = api.request(method, path.replace("{id}", pk), **options)
    headers = {key.lower(): value for key, value in response.headers.items() if key.lower() not in ("date", "connection")}
    return response.status_code, headers, response.content


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_foreign_id_is_one_that_never_was(server: Server, one_box: Lease, name: str) -> None:
    rival = server.api("rival")
    status, headers, body = answer(rival, name, one_box.id)
    assert status == 404
    assert (status, headers, body) == answer(rival, name, NEVER)
    assert one_box.id.encode() not in body


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("pk", ["m_", "m_" + "0" * 25, "M_" + "0" * 24, "m_" + "g" * 24, "%00", "..%2f", "é", "m_" + "0" * 24 + "%0a"])
def test_what_is_no_id(api: Api, name: str, pk: str) -> None:
    assert answer(api, name, pk)[0] == 404


def test_a_foreign_sandbox_is_not_listed_and_not_harmed(server: Server, one_box: Lease) -> None:
    rival = server.api("rival")
    assert one_box.id not in rival.get("/sandboxes").text
    assert one_box.id not in rival.get("/org").text
    assert one_box.sh("echo well") == "well\n"


def test_projects_and_volumes_are_the_orgs(server: Server, fresh: Callable[..., Lease]) -> None:
    lease = fresh(**{"class": "dev", "project": "secret-plan"})
    rival = server.api("rival")
    volume = lease.body["volume"]
    for path in ("/projects", "/volumes"):
        assert "secret-plan" not in rival.get(path).text
    for path in ("/projects/secret-plan", f"/volumes/{volume}"):
        for method in ("GET", "DELETE"):
            rival.refuses(404, "not_found", method, path)
        assert lease.api.get(path).status_code == 200


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer x", "Basic {key}", "{key}", "Bearer {key}x", "Bearer {broken}", "Bearer é"]
)
def test_without_a_good_key(server: Server, one_box: Lease, header: str | None) -> None:
    key = one_box.api.key
    assert key is not None
    anonymous = Api(server.url, None)
    headers = (
        {} if header is None else {"Authorization": header.format(key=key, broken=key[:-1] + ("a" if key[-1] != "a" else "b")).encode()}
    )
    details = set()
    for method, path in (
        ("GET", "/sandboxes"),
        ("POST", "/sandboxes"),
        ("POST", f"{one_box.path}/fs?path=x"),
        ("GET", one_box.path),
        ("GET", "/org"),
    ):
        details.add(anonymous.refuses(401, "unauthorized", method, path, headers=headers)["detail"])
    assert len(details) == 1


@pytest.mark.parametrize("spelling", ["bearer {key}", "BEARER {key}", "Bearer  {key}", "Bearer {key} "])
def test_spellings_of_a_good_key(server: Server, api: Api, spelling: str) -> None:
    assert Api(server.url, None).get("/org", headers={"Authorization": spelling.format(key=api.key)}).status_code == 200


def test_expired_and_revoked_keys(server: Server) -> None:
    expired = server.manage("createkey", "acme", "--days", "1").strip()
    revoked = server.manage("createkey", "acme").strip()
    for key in (expired, revoked):
        assert Api(server.url, key).get("/org").status_code == 200
    change = (
        "from django.utils import timezone; from sandboxes.models import ApiKey; "
        f"ApiKey.objects.filter(prefix={expired[4:16]!r}).update(expires_at=timezone.now()); "
        f"ApiKey.objects.filter(prefix={revoked[4:16]!r}).update(revoked_at=timezone.now())"
    )
    server.manage("shell", "--no-imports", "-c", change)
    for key in (expired, revoked):
        Api(server.url, key).refuses(401, "unauthorized", "GET", "/org")


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_allows_its_own_only(server: Server, one_box: Lease, scope: str) -> None:
    limited = server.api("acme", scope)
    for other, operations in SCOPES.items():
        for method, path in operations:
            if other != scope:
                problem = limited.refuses(403, "forbidden", method, path.replace("{id}", one_box.id))
                assert other in problem["detail"]
    one_box.write("new", b"")
    if scope != "manage":
        for method, path in SCOPES[scope]:
            response = limited.request(method, path.replace("{id}", one_box.id), json={"id": one_box.id, "argv": ["true"], "path": "new"})
            assert response.status_code == 200, response.text


def test_a_key_is_shown_alone(server: Server) -> None:
    output = server.manage("createkey", "acme", "--name", "for a test")
    assert output == output.strip() + "\n"
    assert output.startswith("sbx_")
