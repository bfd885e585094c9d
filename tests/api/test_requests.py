"""Requests that no client should send: each gets an answer that says why, and none a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness.client import Api, Lease

BAD_JSON = [
    b"{",
    b"nonsense",
    b"{'a': 1}",
    b'{"class": "exec",}',
    b'{"ttlSec": NaN}',
    b'{"ttlSec": Infinity}',
    b'{"ttlSec": -Infinity}',
    b'{"ttlSec": 1e999}',
    b'{"class": "\x00"}',
    b'{"class": "\xff\xfe"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[]",
    b'[{"class": "exec"}]',
    b'"exec"',
    b"1",
    b"null",
    b"true",
    b'{"ttlSec": ' + b"9" * 5000 + b"}",
]
BAD_MEMBERS: list[dict[str, Any]] = [
    {"class": 1},
    {"class": ["exec"]},
    {"class": {"exec": 1}},
    {"class": True},
    {"class": "\ud800"},
    {"class": "exec\0"},
    {"project": 5, "class": "dev"},
    {"runtime": False},
    {"image": 0},
    {"ttlSec": "60"},
    {"ttlSec": 60.0},
    {"ttlSec": True},
    {"ttlSec": [60]},
    {"ttlSec": 2**63},
    {"ttlSec": -(2**63) - 1},
    {"ttlSec": 10**400},
    {"cluster": 1},
]
BAD_COMMANDS: list[dict[str, Any]] = [
    {"argv": "true"},
    {"argv": [1]},
    {"argv": [None]},
    {"argv": ["true", None]},
    {"argv": [["true"]]},
    {"argv": {"0": "true"}},
    {"argv": ["true\0"]},
    {"argv": ["\udcff"]},
    {"command": 5},
    {"command": ["true"]},
    {"command": "true\0"},
    {"argv": ["true"], "stdin": 5},
    {"argv": ["true"], "stdin": "\ud800"},
    {"argv": ["true"], "dir": 5},
    {"argv": ["true"], "dir": "a\0"},
    {"argv": ["true"], "timeoutSec": "5"},
    {"argv": ["true"], "timeoutSec": 1.5},
    {"argv": ["true"], "timeoutSec": 10**30},
    {"argv": ["true"], "encoding": "latin-1"},
    {"argv": ["true"], "encoding": 1},
    {"argv": ["true"], "encoding": ["base64"]},
    {"argv": ["true"], "env": "A=b"},
]


@pytest.mark.parametrize("path", ["/sandboxes", "/sandbox/lease", "/sandbox/run", "/sandbox/read", "/sandbox/end", "/projects"])
@pytest.mark.parametrize("body", BAD_JSON, ids=range(len(BAD_JSON)))
def test_bodies_that_are_no_object(api: Api, path: str, body: bytes) -> None:
    response = api.post(path, data=body)
    if body == BAD_JSON[-1] or b"1e999" in body:
        assert response.status_code in (400, 404)  # a number of 5000 digits is an ignored member to some
        return
    assert (response.status_code, response.json()["code"]) == (400, "invalid_body")
    assert response.json()["detail"].startswith("invalid body")


@pytest.mark.parametrize("members", BAD_MEMBERS, ids=str)
def test_members_of_a_wrong_type(api: Api, members: dict[str, Any]) -> None:
    for path in ("/sandboxes", "/sandbox/lease"):
        if "image" in members and path.endswith("lease"):
            continue
        problem = api.refuses(400, "invalid_body", "POST", path, data=json.dumps(members))
        assert next(iter(members)) in problem["detail"]


@pytest.mark.parametrize("members", BAD_COMMANDS, ids=str)
def test_commands_of_a_wrong_type(one_box: Lease, members: dict[str, Any]) -> None:
    one_box.api.refuses(400, "invalid_body", "POST", f"{one_box.path}/exec", data=json.dumps(members))
    one_box.api.refuses(400, "invalid_body", "POST", "/sandbox/run", data=json.dumps({"id": one_box.id, **members}))


@pytest.mark.parametrize("blind", ["secret", [1], [None], {"a": "b"}])
def test_blind_of_a_wrong_type(one_box: Lease, blind: Any) -> None:
    one_box.api.refuses(400, "invalid_body", "POST", "/sandbox/run", json={"id": one_box.id, "argv": ["true"], "blind": blind})


@pytest.mark.parametrize("verb", ["run", "read", "write", "stop", "end"])
@pytest.mark.parametrize("pk", [1, True, ["m_"], {"id": 1}, "\ud800", "m_\0"])
def test_ids_of_a_wrong_type(api: Api, verb: str, pk: Any) -> None:
    api.refuses(400, "invalid_body", "POST", f"/sandbox/{verb}", data=json.dumps({"id": pk, "command": "true"}))


@pytest.mark.parametrize("verb", ["read", "stop"])
def test_purge_is_a_boolean(api: Api, verb: str) -> None:
    for purge in (1, "true", "1", [True]):
        api.refuses(400, "invalid_body", "POST", "/sandbox/end", json={"id": "m_000000000000000000000000", "purge": purge})


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense", "application/json; charset=latin-1"],
)
def test_any_content_type_will_do(one_box: Lease, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    response = one_box.api.post(f"{one_box.path}/exec", data=b'{"argv": ["echo", "hi"]}', headers=headers)
    assert response.json()["stdout"] == "hi\n"


@pytest.mark.parametrize("accept", ["application/problem+json", "text/html", "image/png", "nonsense", "*/*;q=0"])
def test_any_accept_will_do(one_box: Lease, accept: str) -> None:
    response = one_box.api.get(one_box.path, headers={"Accept": accept})
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/sandboxes", {"GET", "POST"}),
        ("DELETE", "/sandbox", {"GET", "POST"}),
        ("POST", "/sandboxes/m_000000000000000000000000", {"GET", "DELETE"}),
        ("PATCH", "/sandboxes/m_000000000000000000000000", {"GET", "DELETE"}),
        ("GET", "/sandboxes/m_000000000000000000000000/exec", {"POST"}),
        ("DELETE", "/sandboxes/m_000000000000000000000000/fs", {"GET", "POST"}),
        ("PUT", "/sandboxes/m_000000000000000000000000/fs", {"GET", "POST"}),
        ("GET", "/sandbox/lease", {"POST"}),
        ("GET", "/sandboxes/run", {"POST"}),
        ("DELETE", "/sandbox/end", {"POST"}),
        ("POST", "/org", {"GET"}),
        ("PUT", "/projects", {"GET", "POST"}),
        ("POST", "/volumes", {"GET"}),
    ],
)
def test_methods_that_are_not_allowed(api: Api, method: str, path: str, allowed: set[str]) -> None:
    response = api.request(method, path)
    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
    assert set(response.headers["Allow"].split(", ")) - {"HEAD", "OPTIONS"} == allowed


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/sandbox/",
        "/sandboxes/",
        "/nothing",
        "/sandboxes/x/y/z",
        "/sandbox/m_0/exec/",
        "/sandbox//exec",
        "/sandboxes/m_0/nothing",
        "/%00",
        "/%ff",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_what_is_not_there(api: Api, method: str, path: str) -> None:
    api.refuses(404, "not_found", method, path)


def test_what_is_not_there_without_a_key(server: Any) -> None:
    Api(server.url, None).refuses(404, "not_found", "GET", "/nothing")


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "localhost:1@evil.example"])
def test_a_host_that_is_not_ours(one_box: Lease, host: str) -> None:
    for method, path in (("GET", "/org"), ("POST", "/sandboxes"), ("GET", one_box.path), ("POST", one_box.file("x")), ("GET", "/nothing")):
        one_box.api.refuses(400, "host_refused", method, path, headers={"Host": host})


def test_head_and_options(api: Api) -> None:
    response = api.request("HEAD", "/sandboxes")
    assert (response.status_code, response.content) == (200, b"")
    assert api.request("OPTIONS", "/sandboxes").status_code in (200, 405)


@pytest.mark.parametrize(
    "query",
    [
        "?project=%00",
        "?status=%00",
        "?limit=%00",
        "?cursor=%ff",
        "?project=%ff",
        "?limit=1&limit=2",
        "?" + "a=b&" * 3000,
        "?status=running&status=x",
    ],
)
def test_queries(api: Api, query: str) -> None:
    response = api.get(f"/sandboxes{query}")
    assert response.status_code in (200, 400), response.text


def test_a_query_of_very_many_parameters(one_box: Lease) -> None:
    for method in ("GET", "POST"):
        one_box.api.refuses(400, "invalid_body", method, f"{one_box.path}/fs?" + "a=b&" * 200 + "path=x")
