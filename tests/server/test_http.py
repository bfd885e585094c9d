"""HTTP as clients see it: framing, keep-alive, what reaches the application, what comes of its failures."""

import json

import pytest

from .client import Hub, Raw
from .client import hub as start

HOST = "Host: test\r\n"


def get(path: str, extra: str = "", version: str = "1.1") -> str:
    return f"GET {path} HTTP/{version}\r\n{HOST}{extra}\r\n"


def post(path: str, body: str, extra: str = "") -> str:
    return f"POST {path} HTTP/1.1\r\n{HOST}{extra}Content-Length: {len(body)}\r\n\r\n{body}"


def chunked(path: str, *chunks: str) -> str:
    parts = "".join(f"{len(chunk):x}\r\n{chunk}\r\n" for chunk in chunks)
    return f"POST {path} HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{parts}0\r\n\r\n"


def test_scope(raw: Raw) -> None:
    response = raw.send(get("/a%20b/%C3%A9%2F?x=%201&y", "X-A: 1\r\nx-a: 2\r\nX_A: forged\r\nDaphne-Root-Path: /forged\r\n")).response()
    scope = json.loads(response.body)
    assert scope["type"] == "http" and scope["http_version"] == "1.1" and scope["method"] == "GET" and scope["scheme"] == "http"
    assert scope["path"] == "/a b/é/" and scope["raw_path"] == "/a%20b/%C3%A9%2F" and scope["query_string"] == "x=%201&y"
    assert scope["headers"] == [["host", "test"], ["x-a", "1"], ["x-a", "2"], ["daphne-root-path", "/forged"]]
    assert scope["root_path"] == "" and scope["client"][0] == "127.0.0.1" and scope["state"] == {"answer": 42}
    assert response.header("server") is None and response.header("date")


def test_absolute_target(raw: Raw) -> None:
    scope = json.loads(raw.send("GET http://other:80/p?q HTTP/1.1\r\nHost: test\r\n\r\n").response().body)
    assert (scope["path"], scope["query_string"], scope["headers"]) == ("/p", "q", [["host", "other:80"]])


def test_keep_alive_and_pipeline(raw: Raw) -> None:
    raw.send(post("/echo", "one") + chunked("/echo", "t", "wo") + get("/nothing") + post("/echo", "") + post("/echo", "three"))
    assert [raw.response().body for _ in range(5)] == [b"one", b"two", b"", b"", b"three"]
    assert raw.send(post("/echo", "four")).response().body == b"four"


def test_deep_pipeline_keeps_order(raw: Raw) -> None:
    count = 3000
    raw.send("".join(post("/echo", str(number)) for number in range(count)))
    assert [int(raw.response().body) for _ in range(count)] == list(range(count))


def test_head(raw: Raw) -> None:
    response = raw.send(f"HEAD /large HTTP/1.1\r\n{HOST}\r\n").response(head=True)
    assert response.status == 200 and response.header("transfer-encoding") is None
    assert raw.send(post("/echo", "next")).response().body == b"next"


def test_http_1_0(raw: Raw) -> None:
    response = raw.send("GET /stream HTTP/1.0\r\n\r\n").response()
    assert response.header("connection") == "close" and response.header("transfer-encoding") is None
    assert len(response.body) == 1600 * 65536 + 4


@pytest.mark.parametrize("value", ["close", "keep-alive, Close"])
def test_connection_close(raw: Raw, value: str) -> None:
    response = raw.send(get("/", f"Connection: {value}\r\n") + get("/")).response()
    assert response.status == 200 and response.header("connection") == "close"
    assert raw.ended()


def test_one_body_has_a_length_and_a_stream_is_chunked(raw: Raw) -> None:
    assert raw.send(get("/")).response().header("content-length")
    response = raw.send(get("/stream")).response()
    assert response.header("transfer-encoding") == "chunked" and response.body.endswith(b"xLAST")


@pytest.mark.parametrize("path", ["/raise", "/silent", "/bad-header"])
def test_failure_is_a_problem_without_a_trace(shared: Hub, path: str) -> None:
    response = shared.get(path)
    assert response.status == 500
    assert response.problem == {
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "detail": "The server failed to handle this request.",
        "code": "internal",
    }


@pytest.mark.parametrize("path", ["/short", "/broken"])
def test_unfinished_response_is_cut_off(shared: Hub, path: str) -> None:
    connection = shared.raw().send(get(path))
    received = b""
    try:
        while data := connection.socket.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    assert not received.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("end", ["close", "reset"])
def test_hang_up_reaches_the_application(server: Hub, end: str) -> None:
    connection = server.raw().send(get("/hang"))
    server.wait("hang.begun")
    getattr(connection, end)()
    server.wait("hang.ended")
    assert server.stats()["hang.disconnected"] == 1


def test_hang_up_behind_a_full_pipeline_is_noticed(server: Hub) -> None:
    connection = server.raw().send(get("/hang"))
    server.wait("hang.begun")
    connection.send(post("/echo", "x" * 50_000))  # more than waits in the server, less than fills the kernel: the end gets through
    connection.close()
    server.wait("hang.ended")


def test_application_that_ignores_a_hang_up_is_cancelled() -> None:
    with start(SERVER_CLOSE_SECONDS="0.1") as server:
        connection = server.ready().raw().send(get("/forever"))
        server.wait("forever.begun")
        connection.close()
        server.wait("forever.ended")
        assert server.stats()["forever.cancelled"] == 1


def test_slow_headers_time_out() -> None:
    with start(SERVER_HEADER_SECONDS="0.3", SERVER_IDLE_SECONDS="0.3") as server:
        slow, idle, body = (server.ready().raw() for _ in range(3))
        slow.send("GET / HTTP/1.1\r\nX-Slow: ")
        body.send(f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 9\r\n\r\nhalf")
        assert slow.response().status == 408 and slow.ended()
        assert body.response().status == 408 and body.ended()
        assert idle.ended()


def test_time_limit_spares_a_body_that_the_application_does_not_read() -> None:
    with start(SERVER_IDLE_SECONDS="0.2") as server:
        connection = server.ready().raw()
        connection.send(f"POST /big/unread HTTP/1.1\r\n{HOST}Content-Length: 3000000\r\n\r\n".encode() + b"x" * 1_000_000)
        other = server.raw()
        assert other.ended()  # the idle limit has passed, more than once for the other one
        assert server.raw().ended()
        server.set("unread")
        assert connection.send(b"x" * 2_000_000).response().body == b"3000000"


def test_proxy_headers_count_only_when_trusted(raw: Raw) -> None:
    extra = "X-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nX-Forwarded-Proto: https\r\n"
    scope = json.loads(raw.send(get("/", extra)).response().body)
    assert scope["client"][0] == "127.0.0.1" and scope["scheme"] == "http"
    with start(SERVER_PROXY_HEADERS="1") as server:
        scope = json.loads(server.ready().raw().send(get("/", extra)).response().body)
        assert scope["client"] == ["2.2.2.2", 0] and scope["scheme"] == "https"
        scope = json.loads(server.raw().send(get("/", "X-Forwarded-For: nonsense\r\n")).response().body)
        assert scope["client"][0] == "127.0.0.1"


def test_options_asterisk(raw: Raw) -> None:
    assert json.loads(raw.send(f"OPTIONS * HTTP/1.1\r\n{HOST}\r\n").response().body)["path"] == "*"
