"""How the server stops: what is in flight ends well, what is not ends at once."""

import signal

import pytest

from .client import Hub, Raw
from .client import hub as start

HOST = "Host: test\r\n"
CLOSE = 8


def begun(server: Hub, path: str) -> Raw:
    connection = server.raw().send(f"GET /{path} HTTP/1.1\r\n{HOST}\r\n")
    server.wait(f"{path}.begun")
    return connection


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_request_in_flight_finishes(server: Hub, number: int) -> None:
    idle, half = server.raw(), server.raw().send("POST /echo HTTP/1.1\r\nHos")
    pending = server.raw().send(f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\n")
    server.stats()
    server.terminate(number)
    assert idle.ended() and half.ended()
    with pytest.raises(ConnectionRefusedError):
        server.raw()
    response = pending.send("hello").response()
    assert (response.status, response.body, response.header("connection")) == (200, b"hello", "close")
    assert pending.ended()
    assert server.exit_code() == 0
    assert "lifespan shutdown\nserved\n" in server.log and "Traceback" not in server.log


def test_kept_alive_connections_do_not_hold_the_exit(server: Hub) -> None:
    connections = [server.raw() for _ in range(20)]
    for connection in connections:
        assert connection.send(f"GET / HTTP/1.1\r\n{HOST}\r\n").response().status == 200
    assert server.terminate().exit_code() == 0
    assert all(connection.ended() for connection in connections)


def test_sockets_get_1001_and_their_applications_end(server: Hub) -> None:
    polite, silent, undecided = server.raw(), server.raw(), server.raw()
    polite.upgrade("/echo")
    silent.upgrade("/echo")
    undecided.send("GET /slow HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
    undecided.send("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
    server.wait("ws_slow.begun")
    server.terminate()
    assert polite.read_close()[0] == 1001
    polite.frame(CLOSE, (1001).to_bytes(2, "big"))
    assert undecided.response().problem["code"] == "draining"
    assert server.exit_code() == 0
    assert silent.read_close()[0] == 1001
    assert "Traceback" not in server.log and "cancelling" not in server.log


def test_long_request_is_told_and_answers() -> None:
    with start(SERVER_DRAIN_SECONDS="0.2") as server:
        connection = begun(server.ready(), "told")
        response = server.terminate() and connection.response()
        assert (response.status, response.body) == (503, b"draining: the output so far")
        assert server.exit_code() == 0


def test_what_does_not_end_is_cancelled() -> None:
    with start(SERVER_DRAIN_SECONDS="0.1", SERVER_ANSWER_SECONDS="0.1") as server:
        connection = begun(server.ready(), "forever")
        server.terminate()
        assert server.exit_code() == 0
        assert connection.response().problem["code"] == "draining"
        assert "cancelling 1 requests" in server.log and "lifespan shutdown" in server.log


def test_complete_answers_reach_a_slow_client(server: Hub) -> None:
    connection = server.raw(receive_buffer=4096).send(f"GET /large HTTP/1.1\r\n{HOST}\r\n")
    server.wait("large.ended")
    server.terminate()
    assert len(connection.response().body) == 8 * 1024 * 1024
    assert server.exit_code() == 0


def test_second_signal_is_immediate(server: Hub) -> None:
    connection = begun(server, "forever")
    idle = server.raw()
    server.stats()
    server.terminate()
    assert idle.ended()
    assert server.terminate().exit_code() == -signal.SIGTERM
    connection.close()


def test_view_that_blocks_its_thread_does_not_hold_the_exit() -> None:
    with start(SERVER_DRAIN_SECONDS="0.1", SERVER_ANSWER_SECONDS="0.1") as server:
        connection = server.ready().raw().send(f"GET /django/block HTTP/1.1\r\n{HOST}\r\n")
        server.line("blocking")
        assert server.terminate().exit_code() == 0
        connection.close()
