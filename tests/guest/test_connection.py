"""A connection's life: the greeting, the ways it ends, and frames that do not belong."""

from __future__ import annotations

import asyncio
import struct

import pytest

from sandboxes.errors import GuestLost, GuestTooOld
from sandboxes.guest import Command, Guest, run
from sandboxes.guest import protocol as wire
from sandboxes.guest.protocol import Send
from sandboxes.guest.transport import open_socket_stream

from .peer import BOOT_ID, FILE_STAT, TRUE, Peer, connect, exit_payload, frame, hello

Scripted = tuple[Guest, Peer]


async def test_greets(scripted: Scripted) -> None:
    guest, _ = scripted
    assert (guest.hello.version, guest.hello.boot_id, guest.hello.pid, guest.hello.uid) == (1, BOOT_ID.decode(), 1, 1000)


async def test_chooses_its_version_from_a_range() -> None:
    guest, peer = await connect(highest=9)
    assert guest.hello.version == 1
    guest.close()
    await peer.ended()
    peer.close()


@pytest.mark.parametrize("versions", [(2, 3), (0, 0)])
async def test_refuses_a_guest_of_another_version(versions: tuple[int, int]) -> None:
    peer, theirs = await Peer.pair()
    peer.send(wire.HELLO, 0, hello(*versions))
    with pytest.raises(GuestTooOld):
        await Guest.open(await open_socket_stream(theirs))
    await peer.ended()
    peer.close()


@pytest.mark.parametrize(
    "first",
    [
        frame(wire.PONG, 0, bytes(8)),
        frame(wire.STARTED, 1, bytes(4)),
        frame(wire.HELLO, 0, b""),
        frame(wire.HELLO, 0, hello()[:-1]),
        frame(wire.HELLO, 0, hello() + b"x"),
        frame(wire.HELLO, 0, hello(boot_id=b"x" * 32)),
        frame(wire.HELLO, 0, hello(streams=0)),
        frame(wire.HELLO, 0, struct.pack(">HHI", 1, 1, 0xFFFF_FFFF)),
        frame(wire.ERROR, 0, wire.string(b"no")),
        b"\xff" * 9,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_refuses_any_other_greeting(first: bytes) -> None:
    peer, theirs = await Peer.pair()
    peer.send_raw(first)
    with pytest.raises(GuestLost):
        await Guest.open(await open_socket_stream(theirs), timeout=30)
    await peer.ended()
    peer.close()


async def test_gives_up_on_a_silent_guest() -> None:
    peer, theirs = await Peer.pair()
    with pytest.raises(GuestLost, match="did not say hello"):
        await Guest.open(await open_socket_stream(theirs), timeout=0.01)
    await peer.ended()
    peer.close()


async def test_an_open_that_is_cancelled_closes_the_stream() -> None:
    peer, theirs = await Peer.pair()
    opening = asyncio.create_task(Guest.open(await open_socket_stream(theirs), timeout=60))
    await asyncio.sleep(0)
    opening.cancel()
    await peer.ended()
    with pytest.raises(asyncio.CancelledError):
        await opening
    peer.close()


async def test_a_lost_connection_wakes_everyone(scripted: Scripted) -> None:
    guest, peer = scripted
    processes = []
    for _ in range(2):
        starting = asyncio.create_task(guest.start(Command([b"cat"], b"/", stdin=True)))
        await peer.started()
        processes.append(await starting)
    process, other = processes
    waiting = [
        asyncio.create_task(call)
        for call in (
            guest.start(TRUE),
            guest.ping(),
            guest.stop_all(),
            guest.stat(b"f"),
            guest.list(b"."),
            guest.read(b"f"),
            guest.write(b"f", _never_ending()),
            run(guest, TRUE, timeout=60),
            process.read(),
            process.wait(),
            process.kill(),
            other.write(bytes(1 << 20)),
        )
    ]
    for _ in range(10):
        await peer.receive()
    peer.close()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, GuestLost), result
    assert await guest.lost == "the guest closed the connection"
    with pytest.raises(GuestLost):
        await guest.stat(b"f")
    with pytest.raises(GuestLost):
        await guest.ping()


async def _never_ending():
    while True:
        yield bytes(1000)


async def test_close_ends_what_is_running(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=60))
    await peer.started()
    guest.close()
    guest.close()
    with pytest.raises(GuestLost):
        await running
    assert await guest.lost == "the connection was closed"
    await peer.ended()


@pytest.mark.parametrize(
    "hostile",
    [
        frame(wire.STARTED, 5, bytes(4)),  # never opened
        frame(wire.HELLO, 0, hello()),  # twice
        frame(0x42, 0),  # no such type
        frame(0x42, 1),
        frame(wire.PONG, 0, bytes(8)),  # never asked
        frame(wire.PONG, 0, bytes(7)),
        frame(wire.GOT_STOPPED, 0, bytes(8)),
        frame(wire.STARTED, 1, struct.pack(">I", 8)),  # twice
        frame(wire.GOT_KILLED, 1, bytes(16)),  # never asked
        frame(wire.OUTEOF, 1, b"\x99"),
        frame(wire.OUTEOF, 1, b"\x83") * 2,
        frame(wire.OUTEOF, 1, b"\x83") + frame(wire.OUT, 1, b"x"),
        frame(wire.OUT, 1, b""),
        frame(wire.OUT, 1, bytes(65_536)) * 2,  # beyond the credit
        frame(wire.CREDIT, 1, b"xxx"),
        frame(wire.EXIT, 1, b""),
        frame(wire.EXIT, 1, exit_payload(kind=99)),
        frame(wire.EXIT, 1, exit_payload(kind=2, value=2)),  # never ran, but it did
        frame(wire.EXIT, 1, exit_payload(value=256)),
        frame(wire.EXIT, 1, exit_payload(kind=1, value=-1)),
        frame(wire.EXIT, 1, exit_payload()) * 2,
        frame(wire.EXIT, 1, exit_payload() + b"x"),
        frame(wire.TREE, 1) * 2,
        frame(wire.OPENED, 1, FILE_STAT),
        frame(wire.ERROR, 1, wire.string(b"no")),
        frame(wire.ERROR, 0, wire.string(b"no")),
        wire.HEADER.pack(0xFFFF_FFFF, wire.OUT, 1),
        wire.HEADER.pack(wire.MAX_OUTPUT + 1, wire.OUT, 1),
        wire.HEADER.pack(wire.MAX_FRAME + 1, wire.EXIT, 1),
    ],
)
async def test_a_violation_ends_the_connection(scripted: Scripted, hostile: bytes) -> None:
    guest, peer = scripted
    starting = asyncio.create_task(guest.start(TRUE))
    await peer.started()
    process = await starting
    peer.send_raw(hostile)
    assert "broke the protocol" in await guest.lost
    await peer.ended()
    with pytest.raises(GuestLost):
        await process.kill()


async def test_a_violation_says_in_plain_words_what_the_guest_refused(scripted: Scripted) -> None:
    guest, peer = scripted
    peer.send(wire.ERROR, 0, wire.string(b"too\x1b[31m many\nstreams" + b"!" * 10_000))
    reason = await guest.lost
    assert "too [31m many streams" in reason
    assert reason.isprintable() and len(reason) < 1000


async def test_late_frames_of_a_released_command_are_ignored_within_its_credit(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=60))
    start = await peer.started()
    peer.send(wire.EXIT, start.stream, exit_payload())
    await running
    await peer.expect(Send.RELEASE)
    peer.send(wire.OUT, start.stream, bytes(60_000))
    peer.send(wire.OUTEOF, start.stream, b"\x83")
    peer.send(wire.OUTEOF, start.stream, b"\x84")
    peer.send(wire.TREE, start.stream)
    pinging = asyncio.create_task(guest.ping())
    peer.send(wire.PONG, 0, (await peer.expect(Send.PING)).payload)
    await pinging
    peer.send(wire.OUT, start.stream, bytes(60_000))
    assert "has ended" in await guest.lost


async def test_ping_and_stop_all_answer_to_each_caller(scripted: Scripted) -> None:
    guest, peer = scripted
    stops = [asyncio.create_task(guest.stop_all()) for _ in range(2)]
    first, second = await peer.expect(Send.STOPALL), await peer.expect(Send.STOPALL)
    peer.send(wire.GOT_STOPPED, 0, struct.pack(">II", second.number, 2))
    peer.send(wire.GOT_STOPPED, 0, struct.pack(">II", first.number, 1))
    assert [await stop for stop in stops] == [1, 2]


async def test_an_answer_to_a_cancelled_ping_is_no_violation(scripted: Scripted) -> None:
    guest, peer = scripted
    pinging = asyncio.create_task(guest.ping())
    ping = await peer.expect(Send.PING)
    pinging.cancel()
    peer.send(wire.PONG, 0, ping.payload)
    again = asyncio.create_task(guest.ping())
    peer.send(wire.PONG, 0, (await peer.expect(Send.PING)).payload)
    await again
    assert not guest.lost.done()


async def test_a_command_waits_while_as_many_streams_are_open_as_the_guest_allows() -> None:
    guest, peer = await connect(streams=2)
    running = [asyncio.create_task(run(guest, TRUE, timeout=60)) for _ in range(3)]
    first, second = await peer.started(), await peer.started()
    peer.send(wire.EXIT, second.stream, exit_payload())
    assert (await peer.expect(Send.RELEASE)).stream == second.stream
    third = await peer.started()
    for start in (first, third):
        peer.send(wire.EXIT, start.stream, exit_payload())
    assert [result.code for result in await asyncio.gather(*running)] == [0, 0, 0]
    guest.close()
    await peer.ended()
    peer.close()
