"""Heads, targets and identities that are made to confuse: each gets a plain refusal, or the answer that it would get without them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness.client import Api, Lease
from harness.server import Server

from .wire import UPGRADE, Answer, exchange, request

NEVER = "m_0123456789abcdef01234567"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "evil.example:80",
        "[::1",
        "a b",
        "",
        "ünï",
        "localhost,evil.example",
    ],
)
def test_a_foreign_host_gets_nothing(one_box: Lease, host: str) -> None:
    """Also where Django's own pages would not look: the API, a file write, a handshake."""
    api = one_box.api
    for method, path, headers in (
        ("GET", "/v1/org", ()),
        ("POST", f"/v1{one_box.file('rebound')}", ()),
        ("GET", f"/v1{one_box.path}/terminal/ws?ticket=x", UPGRADE),
        ("GET", "/admin/login/", ()),
        ("GET", "/v1/openapi.json", ()),
    ):
        answer = request(api, method, path, f"Host: {host}".encode(), *headers)
        assert answer.status == 400, (path, answer)
        answer.code()
    api.refuses(404, "not_found", "GET", one_box.file("rebound"))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8000"])
def test_a_host_of_ours_is_served(api: Api, host: str) -> None:
    assert request(api, "GET", "/v1/org", f"Host: {host}").status == 200


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Proto: javascript",
        "Forwarded: for=1.2.3.4;host=evil.example;proto=https",
        "X-Original-URL: /admin/",
        "X-Rewrite-URL: /admin/",
        "X-HTTP-Method-Override: DELETE",
        "X_Forwarded_Host: evil.example",
        "Cookie: sessionid=x; csrftoken=y",
        "Cookie: " + "a=b; " * 1000,
        "Origin: https://evil.example",
        "Referer: https://evil.example/",
        "Range: bytes=0-1",
        "If-None-Match: *",
        "If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT",
        "Accept-Encoding: gzip, br",
        "Expect: 100-continue",
        "TE: trailers",
        "Accept-Language: " + "x" * 5000,
    ],
)
def test_a_header_that_means_nothing_here(one_box: Lease, header: str) -> None:
    """No proxy is trusted unless SANDBOXHUB_PROXY says so, and the API knows neither cookies nor conditions."""
    answer = request(one_box.api, "GET", f"/v1{one_box.path}", header)
    assert answer.status == 200
    assert json.loads(answer.body)["id"] == one_box.id
    assert not {"set-cookie", "location", "access-control-allow-origin"} & set(answer.headers)


def test_two_keys_are_none(one_box: Lease) -> None:
    """On Django's path and ahead of it alike: a proxy that checked the one must not let the other in."""
    good = f"Authorization: Bearer {one_box.api.key}"
    for method, path in (("GET", f"/v1{one_box.path}"), ("POST", f"/v1{one_box.file('two')}")):
        for pair in ((good, good), (good, "Authorization: Bearer x"), ("Authorization: Basic eDp5", good)):
            answer = request(one_box.api, method, path, *pair)
            assert (answer.status, answer.code()) == (401, "unauthorized")
    one_box.api.refuses(404, "not_found", "GET", one_box.file("two"))


@pytest.mark.parametrize(
    "value", [b"Bearer \xc3\xbc", b"Bearer sbx_\xff", b"\xff", b"Bearer " + b"x" * 15_000, b"Bearer sbx_000000000000_" + b"A" * 43]
)
def test_keys_of_strange_bytes(one_box: Lease, value: bytes) -> None:
    for method, path in (("GET", f"/v1{one_box.path}"), ("POST", f"/v1{one_box.file('x')}")):
        answer = request(one_box.api, method, path, b"Authorization: " + value)
        assert (answer.status, answer.code()) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (["Content-Length: 5"], b"{}", {0}),
        (["Content-Length: 1"], b"{} GET /", {400}),
        (["Content-Length: 2", "Content-Length: 2"], b"{}", {400}),
        (["Content-Length: 2", "Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n", {400}),
        (["Transfer-Encoding: chunked"], b"2\r\n{}\r\n", {0}),
        (["Content-Length: 99999999999999999999"], b"", {413}),
        (["Content-Length: 9999999999"], b"", {413}),
    ],
    ids=str,
)
def test_lengths_that_lie(one_box: Lease, headers: list[str], body: bytes, status: set[int]) -> None:
    for path in (f"/v1{one_box.path}/exec", f"/v1{one_box.file('lie')}"):
        answer = request(one_box.api, "POST", path, *headers, body=body, end=status == {0})  # cut off, it has no answer
        if path.endswith("exec") or answer.status != 200:  # to a file one byte is as good as any other
            assert answer.status in status, answer
        else:
            assert headers == ["Content-Length: 1"]
            one_box.sh("rm lie")
    one_box.api.refuses(404, "not_found", "GET", one_box.file("lie"))


@pytest.mark.parametrize(
    "target",
    [
        "/v1/sandboxes/%00",
        "/v1/sandboxes/%00/exec",
        "/v1/sandboxes/%00/fs?path=x",
        "/v1/sandboxes/%00/terminal",
        "/v1/sandboxes/%00/terminal/ticket",
        "/v1/sandboxes/%00/terminal/ws?ticket=%00",
        "/v1/sandboxes/%00/terminal/upload?token=x",
        "/v1/sandboxes/m_0/terminal/upload?token=%00",
        "/v1/sandboxes/m_0/terminal/upload?" + "a=1&" * 500,
        "/v1/sandboxes/m_0/terminal/upload?token=" + "x" * 10_000,
        "/v1/sandboxes/m_0/terminal/ws?" + "a=1&" * 500,
        "/v1/sandboxes/m_0/fs?" + "path=x&" * 500,
        "/v1/sandboxes?" + "project=%ed%a0%80&" * 20,
        "/v1/sandboxes?cursor=99999999999999999-m_000000000000000000000000",
        "/v1/sandboxes?limit=" + "9" * 4000,
        "/v1/sandboxes?status=%F0%9F%92%A9&project=%F0%9F%92%A9",
        "/v1/projects/%00",
        "/v1/projects/%ed%a0%80",
        "/v1/projects/" + "%41" * 4000,
        "/v1/volumes/%00",
        "/v1/volumes/..%2f..%2fetc",
        "/v1/%2e%2e/admin/",
        "/v1/../admin/",
        "//evil.example/v1/org",
        "/\\evil.example/",
        "/v1/sandboxes/m_0/fs;x?path=y",
        "/v1/sandboxes/m_0%2ffs?path=y",
        "/v1/sandboxes/m_0%0a/fs?path=y",
        "/admin/%00/",
        "/admin/sandboxes/sandbox/%00/change/",
        "/static/%00",
        "/static/../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/static//etc/passwd",
        "http://evil.example/v1/org",
        "/?" + "x" * 9000,
    ],
    ids=lambda target: target[:60],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_targets(api: Api, method: str, target: str) -> None:
    answer = request(api, method, target)
    assert answer.status in (200, 201, 301, 302, 400, 401, 403, 404, 405, 426), answer
    assert b"root:" not in answer.body
    assert "evil.example" not in answer.headers.get("location", "")


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "get", "X" * 4000, "PATCH", "PUT", "OPTIONS", "HEAD"])
def test_methods(one_box: Lease, method: str) -> None:
    for path in ("/v1/sandboxes", f"/v1{one_box.path}/fs?path=x", f"/v1{one_box.path}/terminal/ws", "/admin/login/", "/nothing"):
        answer = request(one_box.api, method, path)
        assert answer.status in (200, 400, 401, 403, 404, 405, 414, 426), answer


def test_a_method_in_a_header_or_a_field_is_no_method(one_box: Lease) -> None:
    for headers, query in ((["X-HTTP-Method-Override: DELETE"], ""), ([], "?_method=DELETE")):
        request(one_box.api, "POST", f"/v1{one_box.path}{query}", *headers, body=b"_method=DELETE")
    assert one_box.status()["status"] == "running"


@pytest.mark.parametrize("org", ["a/../b", "", "ACME", "acme\0", "m_"])
def test_members_that_would_name_another_org_are_nothing(one_box: Lease, org: str) -> None:
    body = {"org": org, "orgId": 1, "actor": "staff root", "id": one_box.id, "container": "x", "__proto__": {"org": org}}
    assert one_box.api.post("/sandbox/lease", body).json()["id"] == one_box.id
    assert one_box.status()["org"] == "acme"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "project",
            [
                "../x",
                "a\nb",
                "\u202eabc",
                "-rf",
                "a" * 100_000,
                "%s%n",
                "{{7*7}}",
                "'; DROP TABLE x; --",
                "<script>",
                "COM1",
                "ı",
                "…",
                "💩" * 100,
            ],
        ),
        (
            "image",
            [
                "../../etc",
                "/",
                "host/../..",
                "docker.io/library/debian",
                "http://127.0.0.1:1/x",
                "a" * 100_000,
                "-v/:/host",
                "HOST",
                "host:latest",
            ],
        ),
        ("runtime", ["runsc", "../runc", "kata-fc", "GVISOR", "-", "runc --privileged", "a" * 100_000]),
        ("class", ["../dev", "ｅｘｅｃ", "exec;dev", "a" * 100_000, "__class__"]),
        ("kind", ["x" * 100_000]),
        ("cluster", ["http://169.254.169.254/", "../x"]),
    ],
)
def test_names_in_a_request_for_a_lease(api: Api, name: str, values: list[str]) -> None:
    for value in values:
        wanted = {"runtime": "runc", **({"class": "dev"} if name == "project" else {}), name: value}
        response = api.post("/sandboxes", wanted)
        assert response.status_code in (201, 400, 404), response.text
        if response.status_code == 201:
            body: dict[str, Any] = response.json()
            assert name in ("project", "kind") or value.lower() == body.get(name), body
            assert len(body.get("project", "")) <= 48
            assert set(body.get("project", "")) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
            assert api.delete(f"/sandboxes/{body['id']}", params={"purge": "1"}).status_code == 204


@pytest.mark.parametrize("key", [b"", b" ", b"\xff", b"a\tb", b"x" * 256, b"\xc3\xbc", b"a, b"])
def test_idempotency_keys_that_are_none(api: Api, key: bytes) -> None:
    answer = request(api, "POST", "/v1/sandboxes", b"Idempotency-Key: " + key, body=b'{"runtime": "runc"}')
    assert (answer.status, answer.code()) == (400, "invalid_body")


def test_the_same_answer_for_ids_that_never_were(api: Api) -> None:
    """Forms of an id do not tell an unknown one from a foreign one."""
    seen = set()
    for pk in (NEVER, "m_0", "M_" + NEVER[2:], NEVER + "0", NEVER.upper(), "m-" + NEVER[2:] + "-0001", "..", "*", "%25", "m_" + "g" * 24):
        answer = request(api, "GET", f"/v1/sandboxes/{pk}")
        seen.add((answer.status, answer.body))
    assert len(seen) == 1
    assert seen.pop()[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        ["Connection: Upgrade", "Upgrade: websocket"],
        [*UPGRADE[:3], "Sec-WebSocket-Key: short"],
        [*UPGRADE[:2], "Sec-WebSocket-Version: 99", UPGRADE[3]],
        [*UPGRADE, "Sec-WebSocket-Protocol: " + ",".join(["a"] * 1000)],
        [*UPGRADE, "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99"],
        [*UPGRADE, "Origin: https://evil.example"],
        [*UPGRADE, "Origin: null"],
        [*UPGRADE, "Origin: http://localhost.evil.example"],
        [*UPGRADE, "Origin: file://"],
        [*UPGRADE, "Origin: http://["],
        [*UPGRADE, b"Origin: http://\xff"],
        [*UPGRADE, "Content-Length: 5"],
        ["Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"],
    ],
    ids=str,
)
def test_handshakes_that_are_refused(one_box: Lease, headers: list[str | bytes]) -> None:
    for query in ("", "?ticket=x", "?ticket=%00&arg=x", "?ticket=" + "x" * 9000, "?ticket=x&rows=-1&cols=9e9", "?arg=" + "%ff" * 100):
        answer = request(one_box.api, "GET", f"/v1{one_box.path}/terminal/ws{query}", *headers, key=False)
        assert answer.status in (400, 401, 403, 426), answer
        assert "sec-websocket-accept" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/sandboxes/x/terminal/ws/", "/ws", "/", "/admin/", "/v1/org", "/v1/sandboxes/%00/terminal/ws"])
def test_handshakes_where_no_socket_is(api: Api, path: str) -> None:
    answer: Answer = request(api, "GET", path, *UPGRADE)
    assert answer.status in (403, 404), answer


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/org HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/org HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\n b\r\n\r\n",
        b"\0" * 1000,
        b"GET /v1/org HTTP/1.0\r\n\r\n",
        b"\r\n" * 5000,
    ],
)
def test_what_is_hardly_http(api: Api, data: bytes) -> None:
    assert exchange(api, data, end=True).status in (0, 400, 401)


def test_an_admin_s_cookie_opens_no_api(server: Server, api: Api) -> None:
    """And a form of another page no admin: there is no action without the token that only our own pages have."""
    login = request(api, "GET", "/admin/login/", key=False)
    assert login.status == 200
    assert "httponly" in login.headers["set-cookie"].lower() or "csrftoken" in login.headers["set-cookie"]
    assert "samesite=lax" in login.headers["set-cookie"].lower()
    assert login.headers["x-frame-options"] == "DENY"
    posted = request(
        api,
        "POST",
        "/admin/login/",
        "Origin: https://evil.example",
        "Content-Type: application/x-www-form-urlencoded",
        body=b"username=a&password=b",
        key=False,
    )
    assert posted.status == 403
    answer = request(api, "GET", "/v1/org", "Cookie: sessionid=" + "a" * 32, key=False)
    assert answer.status == 401
