"""Bytes that are no HTTP: a clean refusal or the end of the connection, no trace, no hang."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .client import Hub, Raw
from .client import hub as start

HOST = b"Host: test\r\n"


@pytest.fixture(scope="module")
def hardy() -> Iterator[Hub]:
    """A server that must have nothing to complain about in the end."""
    with start() as server:
        yield server.ready()
        assert server.get("/").status == 200
        assert server.terminate().exit_code() == 0
        assert "Traceback" not in server.log and "Unhandled" not in server.log, server.log


def request(line: bytes = b"GET / HTTP/1.1", headers: bytes = HOST, body: bytes = b"") -> bytes:
    return line + b"\r\n" + headers + b"\r\n" + body


CORPUS = {
    "empty-lines": (b"\r\n\r\n\r\n", 400),
    "no-version": (request(b"GET /"), 400),
    "lower-case-version": (request(b"GET / http/1.1"), 400),
    "http-2": (request(b"GET / HTTP/2.0"), 400),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "nul-in-target": (request(b"GET /\0 HTTP/1.1"), 400),
    "nul-in-header": (request(headers=HOST + b"X: a\0b\r\n"), 400),
    "control-in-header": (request(headers=HOST + b"X: a\x0bb\r\n"), 400),
    "bare-newline": (request(headers=HOST + b"X: a\nY: b\r\n"), 400),
    "non-ascii-target": (request("GET /é HTTP/1.1".encode()), 400),
    "high-bytes-in-target": (request(b"GET /\x90\xa0 HTTP/1.1"), 400),
    "non-ascii-query": (request(b"GET /?\xa0 HTTP/1.1"), 400),
    "fragment": (request(b"GET /#a HTTP/1.1"), 400),
    "relative-target": (request(b"GET a HTTP/1.1"), 400),
    "connect": (request(b"CONNECT a:1 HTTP/1.1"), 400),
    "bad-method": (request(b"G(T / HTTP/1.1"), 400),
    "no-host": (request(headers=b""), 400),
    "two-hosts": (request(headers=HOST * 2), 400),
    "no-colon": (request(headers=HOST + b"X\r\n"), 400),
    "space-before-colon": (request(headers=HOST + b"X : 1\r\n"), 400),
    "empty-name": (request(headers=HOST + b": 1\r\n"), 400),
    "leading-space": (request(headers=b" X: 1\r\n" + HOST), 400),
    "long-line": (request(b"GET /" + b"a" * 20_000 + b" HTTP/1.1"), 414),
    "endless-line": (b"GET /" + b"a" * 100_000, 414),
    "long-header": (request(headers=HOST + b"X: " + b"a" * 20_000 + b"\r\n"), 431),
    "large-headers": (request(headers=HOST + (b"X: " + b"a" * 8000 + b"\r\n") * 8), 431),
    "many-headers": (request(headers=HOST + b"X: 1\r\n" * 500), 431),
    "negative-length": (request(headers=HOST + b"Content-Length: -1\r\n"), 400),
    "hex-length": (request(headers=HOST + b"Content-Length: 0x10\r\n"), 400),
    "plus-length": (request(headers=HOST + b"Content-Length: +1\r\n", body=b"a"), 400),
    "two-lengths": (request(headers=HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n", body=b"ab"), 400),
    "list-length": (request(headers=HOST + b"Content-Length: 1, 1\r\n", body=b"a"), 400),
    "length-and-chunked": (request(headers=HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", body=b"0\r\n\r\n"), 400),
    "chunked-and-length": (request(headers=HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", body=b"0\r\n\r\n"), 400),
    "chunked-twice": (request(headers=HOST + b"Transfer-Encoding: chunked\r\n" * 2, body=b"0\r\n\r\n"), 400),
    "gzip-coding": (request(headers=HOST + b"Transfer-Encoding: gzip, chunked\r\n", body=b"0\r\n\r\n"), 501),
    "identity-coding": (request(headers=HOST + b"Transfer-Encoding: identity\r\n"), 501),
    "chunked-in-1.0": (request(b"POST /echo HTTP/1.0", HOST + b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"), 400),
    "bad-chunk": (request(b"POST /echo HTTP/1.1", HOST + b"Transfer-Encoding: chunked\r\n", b"zz\r\nabc\r\n"), 400),
    "negative-chunk": (request(b"POST /echo HTTP/1.1", HOST + b"Transfer-Encoding: chunked\r\n", b"-1\r\nabc\r\n"), 400),
    "chunk-without-end": (request(b"POST /echo HTTP/1.1", HOST + b"Transfer-Encoding: chunked\r\n", b"1\r\nabc\r\n"), 400),
    "endless-chunk-line": (request(b"POST /echo HTTP/1.1", HOST + b"Transfer-Encoding: chunked\r\n", b"1" * 5000), 400),
    "endless-trailer": (
        request(b"POST /echo HTTP/1.1", HOST + b"Transfer-Encoding: chunked\r\n", b"0\r\n" + b"X: 1\r\n" * 20_000),
        400,
    ),
}


@pytest.mark.parametrize("name", CORPUS)
def test_malformed_request_is_refused(hardy: Hub, name: str) -> None:
    data, status = CORPUS[name]
    connection = hardy.raw().send(data)
    response = connection.response()
    assert response.problem["status"] == status
    assert response.header("connection") == "close"
    assert connection.ended()


def test_refusal_has_no_body_for_head(hardy: Hub) -> None:
    connection = hardy.raw().send(request(b"HEAD /store HTTP/1.1", HOST + b"Content-Length: 9999999\r\n"))
    assert connection.response(head=True).status == 413
    assert connection.ended()


def test_malformed_second_request_of_a_pipeline(hardy: Hub) -> None:
    connection = hardy.raw().send(request() + request(b"GET /"))
    assert [connection.response().status for _ in range(2)] == [200, 400]
    assert connection.ended()


WORDS = [
    *(b"GET", b"POST", b"HEAD", b"OPTIONS", b" ", b"/", b"/echo", b"/drop", b"/early", b"/store?x", b"*", b"http://a/", b"%zz", b"%00"),
    *(b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b":", b": ", b"\t", b",", b";", b"\xff", b"\xc3\xa9"),
    *(b"Host: a\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n"),
    *(b"Connection: Upgrade\r\n", b"Upgrade: websocket\r\n", b"Sec-WebSocket-Version: 13\r\n", b"0", b"1", b"5", b"99999999", b"-1", b"a"),
    *(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"\x81\x85\0\0\0\0hello", b"\x88\x80\0\0\0\0"),
    *(b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST /echo HTTP/1.1\r\nHost: a\r\n", b"GET /echo HTTP/1.1\r\nHost: a\r\n"),
]
SOUP = st.lists(st.sampled_from(WORDS) | st.binary(max_size=8), max_size=25).map(b"".join)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SOUP)
def test_soup_of_bytes_ends_well(hardy: Hub, data: bytes) -> None:
    connection = Raw(hardy.port)
    try:
        connection.send(data)
        connection.socket.shutdown(socket.SHUT_WR)
        answer = connection.rest()
    except (ConnectionResetError, BrokenPipeError):
        return
    finally:
        connection.close()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in answer
