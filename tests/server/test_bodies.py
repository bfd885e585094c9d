"""Request bodies: lazy, bounded, refused early, and answered early."""

import pytest

from .client import Hub, Raw

HOST = "Host: test\r\n"
MIB = 1024 * 1024
LIMIT = MIB  # of every path but /big/


def begin(path: str, length: int | None, extra: str = "") -> str:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"POST {path} HTTP/1.1\r\n{HOST}{extra}{framing}\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def pour(server: Hub, connection: Raw, data: bytes) -> int:
    """Send until the server takes no more; the bytes sent. "No more" is: nothing moved while it answered other requests."""
    sent = idle = 0
    connection.socket.setblocking(False)
    while idle < 20 and sent < len(data):
        try:
            sent += connection.socket.send(memoryview(data)[sent : sent + MIB])
            idle = 0
        except BlockingIOError:
            server.stats()
            idle += 1
    connection.socket.settimeout(60)
    return sent


def test_over_the_limit_is_refused_at_the_headers(server: Hub) -> None:
    response = server.raw().send(begin("/store", LIMIT + 1)).response()
    assert response.status == 413 and response.header("connection") == "close"
    assert response.problem["title"] == "Content Too Large" and response.problem["code"] == "too_large"
    stats = server.stats()
    assert stats["stored"] == {} and "store.started" not in stats
    assert server.raw().send(begin("/store", LIMIT) + "x" * LIMIT).response().status == 200


def test_refusal_arrives_while_the_client_still_sends(server: Hub) -> None:
    connection = server.raw().send(begin("/store", 50 * MIB))
    for _ in range(50):
        connection.send(b"x" * MIB)
    assert connection.response().status == 413
    assert server.stats()["stored"] == {}


def test_chunked_over_the_limit_is_refused_while_it_comes(server: Hub) -> None:
    connection = server.raw().send(begin("/store", None))
    for _ in range(20):
        connection.send(chunk(b"x" * MIB))
    assert connection.response().problem["code"] == "too_large"
    assert connection.ended()
    server.wait("store.ended")
    assert server.stats()["stored"] == {}


def test_endless_length_is_refused(raw: Raw) -> None:
    assert raw.send(f"POST /store HTTP/1.1\r\n{HOST}Content-Length: {'9' * 5000}\r\n\r\n").response().status == 413


@pytest.mark.parametrize("length", [100 * MIB, None])
def test_early_answer_arrives_while_the_client_still_sends(server: Hub, length: int | None) -> None:
    connection = server.raw().send(begin("/big/early", length))
    part = b"x" * MIB if length else chunk(b"x" * MIB)
    for _ in range(40):
        connection.send(part)
    response = connection.response()
    assert (response.status, response.body, response.header("connection")) == (409, b"early", "close")
    assert connection.ended()


def test_continue_comes_when_the_application_reads(server: Hub) -> None:
    connection = server.raw().send(begin("/unread", 5, "Expect: 100-continue\r\n"))
    server.stats()
    connection.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        connection.socket.recv(1)
    connection.socket.settimeout(60)
    server.set("unread")
    assert connection.response().status == 100
    assert connection.send("hello").response().body == b"5"


def test_no_continue_for_what_is_refused_or_answered_unread(shared: Hub) -> None:
    assert shared.raw().send(begin("/store", LIMIT + 1, "Expect: 100-continue\r\n")).response().status == 413
    assert shared.raw().send(begin("/early", 5, "Expect: 100-continue\r\n")).response().status == 409
    assert shared.raw().send(begin("/echo", 5, "Expect: tea\r\n")).response().status == 417


def test_application_starts_at_the_headers(server: Hub) -> None:
    connection = server.raw().send(begin("/hang", 5))
    server.wait("hang.begun")
    connection.close()
    server.wait("hang.ended")


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_flood_is_bounded_while_the_application_does_not_read(server: Hub, framing: str) -> None:
    before = server.stats()["rss"]
    connection = server.raw().send(begin("/big/unread", 100 * MIB if framing == "length" else None))
    data = b"x" * (100 * MIB) if framing == "length" else chunk(b"x" * MIB) * 100
    sent = pour(server, connection, data)
    assert sent < 20 * MIB  # what the kernel's two buffers hold, and a little
    assert server.stats()["rss"] - before < 10 * MIB
    server.set("unread")
    connection.send(data[sent:])
    if framing == "chunked":
        connection.send("0\r\n\r\n")
    assert int(connection.response().body) == 100 * MIB
    assert server.stats()["rss"] - before < 20 * MIB


def test_tiny_chunks_cost_no_more_than_their_bytes(server: Hub) -> None:
    before = server.stats()["rss"]
    connection = server.raw().send(begin("/big/unread", None))
    pour(server, connection, chunk(b"x") * MIB)
    assert server.stats()["rss"] - before < 10 * MIB


def test_multipart_form_is_not_parsed_by_the_server(server: Hub) -> None:
    before = server.stats()["rss"]
    connection = server.raw().send(begin("/big/drop", 200 * MIB, "Content-Type: multipart/form-data; boundary=b\r\n"))
    head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    connection.send(head.ljust(MIB, b"x"))
    for _ in range(199):
        connection.send(b"x" * MIB)
    assert int(connection.response().body) == 200 * MIB
    assert server.stats()["rss"] - before < 20 * MIB


def test_aborted_upload_is_a_disconnect(server: Hub) -> None:
    server.raw().send(begin("/drop", 1000) + "half").reset()
    server.wait("drop.ended")
    assert server.stats()["drop.disconnected"] == 1


def test_next_request_waits_for_the_answers_to_be_read(server: Hub) -> None:
    """A client that pipelines and reads nothing gets one large answer made, not all of them."""
    connection = server.raw(receive_buffer=4096)
    connection.send(f"GET /large HTTP/1.1\r\n{HOST}\r\n" * 6)
    server.wait("large.ended")
    for _ in range(20):
        stats = server.stats()
    assert stats["large.started"] <= 2
    assert [len(connection.response().body) for _ in range(6)] == [8 * MIB] * 6


@pytest.mark.parametrize("size", [100, 256 * 1024 + 100, 900 * 1024])
def test_connection_lives_on_when_a_body_was_not_read(server: Hub, size: int) -> None:
    """Unless the answer says that it does not."""
    connection = server.raw().send(begin("/late", size) + "x" * size)
    server.set("late")
    response = connection.response()
    assert response.body == b"late"
    if response.header("connection") != "close":
        assert connection.send(begin("/echo", 4) + "next").response().body == b"next"
