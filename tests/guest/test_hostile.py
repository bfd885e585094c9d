"""Whatever a guest sends, however it is cut: no error leaves the connection, memory stays bounded, everyone who waits is woken."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from collections.abc import AsyncIterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxes.engine.base import Receiver
from sandboxes.errors import SandboxError
from sandboxes.guest import Command, Guest, Process, run
from sandboxes.guest import protocol as wire
from sandboxes.guest.protocol import HEADER, Parser, Violation

from .peer import FILE_STAT, TRUE, entry, exit_payload, frame, hello

COMMAND, RUN, STAT, LIST, READ, WRITE = range(1, 7)


class Line:
    """A byte stream in memory."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.sent = bytearray()
        self.closed = False

    def attach(self, receiver: Receiver) -> None:
        self.receiver = receiver
        receiver.data_received(memoryview(frame(wire.HELLO, 0, hello())))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    async def drain(self) -> None:
        return

    def close(self) -> None:
        self.closed = True


ids = st.integers(0, 3)
numbers = st.integers(0, 0xFFFF_FFFF)
well_formed = st.one_of(
    st.tuples(st.just(wire.STARTED), st.integers(1, 9).map(lambda n: struct.pack(">I", n))),
    st.tuples(st.sampled_from([wire.OUT, wire.ERR]), st.integers(1, wire.MAX_OUTPUT).map(bytes)),
    st.tuples(st.just(wire.OUT), st.lists(st.binary(min_size=1, max_size=5).map(entry)).map(b"".join)),
    st.tuples(st.just(wire.OUTEOF), st.sampled_from([b"\x83", b"\x84"])),
    st.tuples(st.just(wire.CREDIT), numbers.map(lambda n: struct.pack(">I", n))),
    st.tuples(
        st.just(wire.EXIT),
        st.builds(exit_payload, st.sampled_from([0, 1, 2, 6, 7, 8, 9, 10]), st.integers(-1, 300), st.binary(max_size=30)),
    ),
    st.tuples(st.just(wire.EXIT), st.just(exit_payload(text=FILE_STAT))),
    st.tuples(st.just(wire.GOT_KILLED), ids.map(lambda n: struct.pack(">IIII", n, 1, 1, 0))),
    st.tuples(st.just(wire.OPENED), st.just(FILE_STAT)),
    st.tuples(st.just(wire.TREE), st.just(b"")),
    st.tuples(st.just(wire.GOT_STOPPED), ids.map(lambda n: struct.pack(">II", n, 1))),
    st.tuples(st.just(wire.PONG), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(wire.ERROR), st.binary(max_size=40).map(wire.string)),
)
hostile = st.tuples(st.integers(0, 255), st.binary(max_size=60))
frames = st.tuples(st.integers(0, 8), st.one_of(well_formed, well_formed, hostile)).map(lambda f: frame(f[1][0], f[0], f[1][1]))
streams = st.lists(st.one_of(frames, frames, frames, frames, st.binary(max_size=20))).map(b"".join)


def cut(data: bytes, splits: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(s % (len(data) + 1) for s in splits)})
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(3000)


async def drain(process: Process) -> None:
    while await process.read() is not None:
        pass


async def use_everything(guest: Guest) -> list[asyncio.Task[object]]:
    """One stream of each sort, in the order of their numbers, and a request of each sort."""
    process = await guest.launch(Command([b"cat"], b"/", stdin=True))

    async def read() -> None:
        reader = await guest.read(b"f")
        async for _ in reader:
            pass

    calls = [run(guest, TRUE, timeout=60), guest.stat(b"f"), guest.list(b"d"), read(), guest.write(b"f", endless())]
    calls += [
        process.started(),
        process.write(bytes(100_000)),
        process.wait(),
        drain(process),
        process.kill(),
        guest.stop_all(),
        guest.ping(),
    ]
    tasks = []
    for call in calls:
        tasks.append(asyncio.create_task(call))
        await asyncio.sleep(0)
    return tasks


async def survive(pieces: list[bytes]) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    line = Line()
    guest = await Guest.open(line)
    tasks = await use_everything(guest)
    for piece in pieces:
        buffer = bytearray(piece)
        assert line.receiver is not None
        line.receiver.data_received(memoryview(buffer))
        buffer[:] = b"\xaa" * len(buffer)  # it is reused
        await asyncio.sleep(0)
    assert guest.lost.done() == line.closed
    guest.close()
    await asyncio.wait(tasks)
    for task in tasks:
        assert task.cancelled() or task.exception() is None or isinstance(task.exception(), SandboxError), task.exception()
    assert line.closed and guest.lost.done()
    assert not errors


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(streams, st.lists(st.integers(0, 1 << 20), max_size=12))
def test_survives_anything(data: bytes, splits: list[int]) -> None:
    asyncio.run(survive(cut(data, splits)))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 99), st.binary(max_size=50))), st.lists(st.integers(0, 1 << 20), max_size=30))
def test_frames_do_not_depend_on_how_they_are_cut(sent: list[tuple[int, int, bytes]], splits: list[int]) -> None:
    got: list[tuple[int, int, bytes]] = []

    def more(kind: int, stream: int, payload: memoryview) -> None:
        assert payload and kind in (wire.OUT, wire.ERR) and got[-1][:2] == (kind, stream)
        got[-1] = (kind, stream, got[-1][2] + payload)

    parser = Parser(lambda kind, stream, payload: got.append((kind, stream, bytes(payload))), more)
    for piece in cut(b"".join(frame(*f) for f in sent), splits):
        parser.feed(memoryview(piece))
    assert got == sent


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([(wire.OUT, wire.MAX_OUTPUT), (wire.EXIT, wire.MAX_FRAME)]), st.integers(1), st.integers(1, 9))
def test_a_huge_frame_is_refused_at_its_header(most: tuple[int, int], excess: int, split: int) -> None:
    parser = Parser(lambda *_: None, lambda *_: None)
    kind, length = most
    header = HEADER.pack(min(length + excess, 0xFFFF_FFFF), kind, 1)
    try:
        parser.feed(memoryview(header[:split]))
        parser.feed(memoryview(header[split:]))
    except Violation:
        return
    raise AssertionError("accepted")


async def test_output_that_nobody_reads_costs_no_more_than_its_credit_even_byte_by_byte() -> None:
    line = Line()
    guest = await Guest.open(line)
    process = await guest.launch(TRUE)
    assert line.receiver is not None
    line.receiver.data_received(memoryview(frame(wire.STARTED, 1, struct.pack(">I", 9))))
    pair = memoryview((frame(wire.OUT, 1, b"o") + frame(wire.ERR, 1, b"e")) * 1000)
    tracemalloc.start()
    for _ in range(32):
        line.receiver.data_received(pair)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 200_000
    total = 0
    while total < 64_000:
        piece = await process.read()
        assert piece is not None
        total += len(piece.data)
    assert not guest.lost.done()
    guest.close()
