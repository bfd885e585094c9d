"""Anything that a client may do to an open terminal: nothing of it is left afterwards, and nothing of it is an error of the server's."""

from __future__ import annotations

import contextlib
import json
import socket

from harness.client import Lease
from harness.server import Server
from harness.waiting import until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import raw
from .client import address, ticket
from .test_images import processes

EXAMPLES = 100
SIZES = [0, 1, 125, 126, 65_535, 65_536, 256 * 1024, 1 << 20, (1 << 20) + 1]
NUMBERS = st.integers(-2, 1200) | st.sampled_from([None, True, "1", 1e99, 10**30, {}, []])

typed = st.builds(lambda size, byte: raw.frame(raw.BINARY, bytes([byte]) * size), st.sampled_from(SIZES), st.integers(0, 255))
text = st.builds(lambda size: raw.frame(raw.TEXT, b"\xe2\x82\xac" * (size // 3)), st.sampled_from(SIZES))
control = st.fixed_dictionaries({}, optional={"resize": st.fixed_dictionaries({"rows": NUMBERS, "cols": NUMBERS}), "ack": NUMBERS})
controls = st.builds(lambda value: raw.frame(raw.TEXT, json.dumps(value).encode()), control)
partial = st.sampled_from([b"\xe2\x82", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f"]).map(lambda data: raw.frame(raw.TEXT, data))
split = st.sampled_from(
    [
        raw.frame(raw.TEXT, b"echo \xe2", final=False) + raw.frame(0, b"\x82\xac\n"),
        raw.frame(raw.BINARY, b"ls", final=False) + raw.frame(raw.PING, b"between") + raw.frame(0, b"\n"),
        raw.frame(raw.TEXT, b"begun", final=False),
        raw.frame(raw.TEXT, b"begun", final=False) + raw.frame(raw.BINARY, b"another"),
    ]
)
lines = st.sampled_from(
    [b"yes\n", b"sleep 1000 &\n", b"cat\n", b"exit 3\n", b"\x03", b"\x04", b"(sleep 1000 &)\n", b"stty raw; sleep 1000\n"]
)
commands = lines.map(lambda line: raw.frame(raw.BINARY, line))
broken = st.binary(max_size=40)
actions = st.lists(commands | typed | text | controls | partial | split | broken, max_size=8)
endings = st.sampled_from(["reset", "close", "goodbye", "half", "read and reset"])
queries = st.fixed_dictionaries(
    {}, optional={"flow": st.sampled_from([0, 1]), "rows": st.sampled_from(["0", "x", "24", "9" * 12]), "cols": st.integers(-1, 2000)}
)


def misbehave(url: str, frames: list[bytes], ending: str) -> None:
    opened, status, _ = raw.handshake(url)
    assert status == 101
    with contextlib.suppress(OSError):  # the server may end it at any time, and stop reading: then what is left stays unsent
        opened.settimeout(0.5)
        for data in frames:
            opened.sendall(data)
        if ending == "goodbye":
            opened.sendall(raw.frame(raw.CLOSE, b"\x03\xe8"))
        elif ending == "half":
            opened.shutdown(socket.SHUT_WR)
        if ending in ("goodbye", "half", "read and reset"):
            for _ in range(20):
                if not opened.recv(65_536):
                    break
    if ending == "close":
        opened.close()
    else:
        raw.reset(opened)


def test_nothing_that_a_client_does_is_an_error_or_leaves_something(server: Server, light: Lease) -> None:
    before = count(light)
    misbehave(address(light, ticket=ticket(light)), [], "goodbye")
    until(lambda: count(light) == before)
    files, threads = server.files(), server.threads()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(queries, actions, endings)
    def fuzz(query: dict[str, object], frames: list[bytes], ending: str) -> None:
        misbehave(address(light, ticket=ticket(light), **query), frames, ending)

    fuzz()
    for size in (0, 10, 60):  # the handshake itself, given up
        text = f"GET /v1/sandboxes/{light.id}/terminal/ws?ticket={ticket(light)} HTTP/1.1\r\n".encode()
        with socket.create_connection(("127.0.0.1", server.port)) as early:
            early.sendall(text[:size])
    until(lambda: processes(light) == 0, seconds=180)  # a hundred shells are ended, each at the pace of a busy machine
    until(lambda: count(light) == before)
    until(lambda: server.files() <= files)
    until(lambda: server.threads() <= threads + 4)  # of the pool for the database
    assert server.complaints() == []


def count(lease: Lease) -> int:
    """How many processes are in the sandbox, beside those that count: the guest, and in a pod what connects to it."""
    return int(lease.sh("set -- /proc/[0-9]*; echo $(($# - 1))"))
