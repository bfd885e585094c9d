"""Websockets: denial, what the application is told, limits, close codes, back-pressure, pings."""

import json

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from .client import HANDSHAKE, Hub, frame_head
from .client import hub as start
from .test_bodies import pour

MIB = 1024 * 1024
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def test_denial_has_status_headers_and_body(shared: Hub) -> None:
    response = shared.raw().upgrade("/deny")
    assert (response.status, response.body) == (401, b'{"detail":"no"}')
    assert response.header("www-authenticate") == "Ticket" and response.header("connection") == "close"
    with pytest.raises(InvalidStatus) as denied:
        connect(f"ws://127.0.0.1:{shared.port}/deny")
    assert denied.value.response.status_code == 401 and denied.value.response.body == b'{"detail":"no"}'


def test_denials_leave_nothing(server: Hub) -> None:
    for _ in range(200):
        connection = server.raw()
        assert connection.upgrade("/deny").status == 401
        assert connection.ended()
        connection.close()
    stats = server.stats()
    assert stats["ws_deny.started"] == stats["ws_deny.ended"] == 200


def test_close_before_accept_is_a_403(shared: Hub) -> None:
    assert shared.raw().upgrade("/close-first").problem["status"] == 403


def test_failure_before_accept_is_a_500(shared: Hub) -> None:
    assert shared.raw().upgrade("/no-such-socket").status == 500


def test_get_without_upgrade_goes_to_http(shared: Hub) -> None:
    assert json.loads(shared.get("/scope").body)["type"] == "http"
    without = HANDSHAKE.format(path="/scope").replace("Connection: Upgrade", "Connection: keep-alive")
    assert json.loads(shared.raw().send(without).response().body)["type"] == "http"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 99"),
        ("Sec-WebSocket-Version: 13\r\n", ""),
        ("AAAAAAAAAAAAAAAAAAAAAA==", "short"),
        ("Host: test", 'Host: test:"x"'),
        ("Host: test", "Host: test\r\nOrigin: ://"),
        ("\r\n\r\n", "\r\nContent-Length: 3\r\n\r\nabc"),
    ],
)
def test_wrong_handshake_is_a_400(shared: Hub, old: str, new: str) -> None:
    connection = shared.raw().send(HANDSHAKE.format(path="/echo").replace(old, new))
    assert connection.response().problem["status"] == 400
    assert connection.ended()


def test_scope_headers_and_subprotocol(shared: Hub) -> None:
    url, extra = f"ws://127.0.0.1:{shared.port}/scope/%C3%A9?x=1", [("X-A", "1"), ("X-A", "2")]
    with connect(url, subprotocols=["a", "b"], additional_headers=extra) as socket:
        scope = json.loads(socket.recv())
        assert socket.subprotocol == "b"
        assert socket.response.headers.get_all("x-one") == ["1", "2"]
    assert scope["type"] == "websocket" and scope["scheme"] == "ws" and scope["subprotocols"] == ["a", "b"]
    assert scope["path"] == "/scope/é" and scope["raw_path"] == "/scope/%C3%A9" and scope["query_string"] == "x=1"
    assert [value for name, value in scope["headers"] if name == "x-a"] == ["1", "2"]
    assert scope["extensions"] == {"websocket.http.response": {}} and scope["state"] == {"answer": 42}


def test_echo_up_to_the_limit(shared: Hub) -> None:
    with connect(f"ws://127.0.0.1:{shared.port}/echo", max_size=None, compression=None) as socket:
        for message in ("", b"", "text é", b"\0binary", b"x" * MIB):
            socket.send(message)
            assert socket.recv() == message


@pytest.mark.parametrize("whole", [True, False])
def test_too_large_is_a_1009(server: Hub, whole: bool) -> None:
    connection = server.raw()
    connection.upgrade("/echo")
    if whole:
        connection.send(frame_head(BINARY, 50 * MIB))
        for _ in range(50):
            connection.send(b"x" * MIB)
    else:
        connection.send(frame_head(BINARY, MIB + 1))
    assert connection.read_close()[0] == 1009
    assert connection.ended()
    server.wait("ws_echo.ended")


def test_fragments_count_together(shared: Hub) -> None:
    connection = shared.raw()
    connection.upgrade("/echo")
    first = frame_head(BINARY, MIB // 2)
    connection.send(bytes([first[0] & 0x7F]) + first[1:] + b"x" * (MIB // 2))
    connection.send(b"\x00" + frame_head(0, MIB // 2 + 1)[1:] + b"x" * (MIB // 2 + 1))
    assert connection.read_close()[0] == 1009


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"\xff\xff\xff", 1002),  # reserved bits
        (frame_head(TEXT, 2) + b"\xff\xff", 1007),
        (frame_head(PING, 1000), 1002),  # control frames are short
        (b"\x82\x01x", 1002),  # not masked
        (frame_head(CLOSE, 2) + b"\x00\x01", 1002),
        (frame_head(0, 1) + b"x", 1002),  # continues nothing
    ],
)
def test_protocol_violation_is_answered(shared: Hub, bad: bytes, code: int) -> None:
    connection = shared.raw()
    connection.upgrade("/echo")
    connection.send(bad)
    assert connection.read_close()[0] == code
    assert connection.ended()


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012, 4001, 4003])
def test_close_code_and_reason_arrive(server: Hub, code: int) -> None:
    connection = server.raw()
    connection.upgrade(f"/code/{code}/because")
    assert connection.read_close() == (code, "because")
    connection.frame(CLOSE, code.to_bytes(2, "big"))
    assert connection.ended()
    server.wait("ws_code.ended")
    assert server.stats()["ws_code.after_websocket.disconnect"] == 1


def test_failure_after_accept_is_a_1011(shared: Hub) -> None:
    connection = shared.raw()
    connection.upgrade("/raise")
    code, reason = connection.read_close()
    assert code == 1011 and "secret" not in reason


@pytest.mark.parametrize(("how", "code"), [("frame", 4321), ("empty", 1005), ("close", 1006), ("reset", 1006)])
def test_end_reaches_the_application(server: Hub, how: str, code: int) -> None:
    connection = server.raw()
    connection.upgrade("/echo")
    if how in ("frame", "empty"):
        connection.frame(CLOSE, code.to_bytes(2, "big") if how == "frame" else b"")
    else:
        getattr(connection, how)()
    server.wait("ws_echo.ended")
    assert server.stats()[f"ws_echo.{code}"] == 1


def test_stalled_reader_holds_the_application_and_loses_nothing(server: Hub) -> None:
    before = server.stats()["rss"]
    connection = server.raw(receive_buffer=64 * 1024)
    connection.upgrade("/flood")
    server.wait("ws_flood.begun")
    for _ in range(50):
        stats = server.stats()
    assert stats["ws_flood.frames"] < 200  # the kernel's buffers, not the 1600 there are
    assert stats["rss"] - before < 10 * MIB
    frames = [connection.read_frame() for _ in range(1601)]
    assert all(frame == (BINARY, b"x" * 65536) for frame in frames[:-1])
    assert frames[-1] == (TEXT, b"LAST")
    assert connection.read_close() == (4003, "the sandbox died")


def test_flood_is_bounded_while_the_application_does_not_read(server: Hub) -> None:
    before = server.stats()["rss"]
    connection = server.raw()
    connection.upgrade("/deaf")
    data = (frame_head(BINARY, 65536) + b"x" * 65536) * 1600
    sent = pour(server, connection, data)
    assert sent < 20 * MIB
    assert server.stats()["rss"] - before < 15 * MIB
    server.set("ws_deaf")
    connection.send(data[sent:]).frame(CLOSE, b"")
    server.wait("ws_deaf.ended")
    assert server.stats()["ws_deaf.bytes"] == 1600 * 65536


def test_vanished_client_is_noticed_while_it_is_not_read() -> None:
    with start(SERVER_CLOSE_SECONDS="0.1") as server:
        connection = server.ready().raw()
        connection.upgrade("/deaf")
        connection.send((frame_head(BINARY, 65536) + b"x" * 65536) * 5)  # enough to hold reading, too little to fill the kernel
        connection.close()
        server.wait("ws_deaf.ended")
        assert server.stats()["ws_deaf.cancelled"] == 1


def test_early_data_is_kept_and_bounded(server: Hub) -> None:
    early = frame_head(TEXT, 5) + b"early"
    connection = server.raw().send(HANDSHAKE.format(path="/echo").encode() + early)
    assert connection.response().status == 101
    assert connection.read_frame() == (TEXT, b"early")
    connection = server.raw().send(HANDSHAKE.format(path="/slow"))
    connection.send(HANDSHAKE.format(path="/slow") * 1000)
    assert connection.response().status == 400
    server.wait("ws_slow.ended")
    assert server.stats()["ws_slow.started"] == 1


def test_client_that_leaves_the_handshake(server: Hub) -> None:
    connection = server.raw().send(HANDSHAKE.format(path="/slow"))
    server.wait("ws_slow.begun")
    connection.close()
    server.wait("ws_slow.ended")
    assert server.stats()["ws_slow.1006"] == 1


def test_handshake_timeout_is_answered() -> None:
    with start(SERVER_HANDSHAKE_SECONDS="0.1") as server:
        assert server.ready().raw().upgrade("/slow").status == 503
        server.wait("ws_slow.ended")


def test_pings_drop_the_silent_and_spare_the_slow() -> None:
    with start(SERVER_PING_SECONDS="0.1", SERVER_PONG_SECONDS="0.1") as server:
        slow = server.ready().raw(receive_buffer=64 * 1024)
        slow.upgrade("/flood")
        server.wait("ws_flood.begun")
        silent = server.raw()
        silent.upgrade("/echo")
        assert silent.read_frame()[0] == PING
        assert silent.ended()
        server.wait("ws_echo.ended")
        frames = [slow.read_frame() for _ in range(1601)]  # the slow one was pinged no more than it could read
        assert frames[-1] == (TEXT, b"LAST")


def test_pong_keeps_a_socket() -> None:
    with start(SERVER_PING_SECONDS="0.1", SERVER_PONG_SECONDS="0.1") as server:
        connection = server.ready().raw()
        connection.upgrade("/echo")
        for _ in range(2):
            assert connection.read_frame() == (PING, b"")
            connection.frame(PONG, b"")
        connection.frame(TEXT, b"alive")
        assert connection.read_frame() == (TEXT, b"alive")


def test_client_that_takes_nothing_is_dropped_in_the_end() -> None:
    with start(SERVER_STALL_SECONDS="0.5") as server:
        connection = server.ready().raw(receive_buffer=64 * 1024)
        connection.upgrade("/flood")
        server.wait("ws_flood.ended")
        http = server.raw(receive_buffer=64 * 1024).send("GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        server.wait("stream.ended")
        http.close()
