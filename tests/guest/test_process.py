"""A command against a scripted guest: flow control, kills and cancellation, whatever order the frames come in."""

from __future__ import annotations

import asyncio
import signal
import struct

import pytest

from sandboxes.errors import GuestLost
from sandboxes.guest import CannotStart, CannotStartKind, Command, ExitKind, Guest, Killed, Outcome, Process, RunLost, commands, run
from sandboxes.guest import protocol as wire
from sandboxes.guest.flow import MAX_STREAMS, TOTAL
from sandboxes.guest.protocol import Send

from .peer import TRUE, WITH_STDIN, Frame, Peer, exit_payload, first_credit

Scripted = tuple[Guest, Peer]


async def start(guest: Guest, peer: Peer, command: Command = TRUE) -> tuple[Process, Frame]:
    starting = asyncio.create_task(guest.start(command))
    frame = await peer.started()
    return await starting, frame


async def pong(guest: Guest, peer: Peer) -> None:
    """A round trip: the client has seen all that the peer sent before."""
    pinging = asyncio.create_task(guest.ping())
    peer.send(wire.PONG, 0, (await peer.expect(Send.PING)).payload)
    await pinging


async def test_start_sends_the_command_as_it_is(scripted: Scripted) -> None:
    guest, peer = scripted
    command = Command([b"a", b"\xff \n"], b"/work", {b"K": b"v=\xfe"}, stdin=True)
    process, frame = await start(guest, peer, command)
    rest = wire.string(b"") + wire.string(b"/work") + wire.strings([b"a", b"\xff \n"]) + wire.strings([b"K=v=\xfe"])
    assert frame.payload == struct.pack(">BHHI", 4, 0, 0, first_credit(frame)) + rest
    assert process.pid == 7


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (2, CannotStartKind.NOT_FOUND),
        (3, CannotStartKind.NOT_EXECUTABLE),
        (4, CannotStartKind.BAD_CWD),
        (5, CannotStartKind.LIMIT),
        (6, CannotStartKind.OTHER),
    ],
)
async def test_a_command_that_cannot_start(scripted: Scripted, kind: int, expected: CannotStartKind) -> None:
    guest, peer = scripted
    starting = asyncio.create_task(guest.start(TRUE))
    peer.send(wire.EXIT, (await peer.expect(Send.START)).stream, exit_payload(kind, 11, b"because"))
    with pytest.raises(CannotStart) as caught:
        await starting
    assert (caught.value.kind, caught.value.errno, caught.value.text) == (expected, 11, "because")
    await pong(guest, peer)  # and no RELEASE came before


async def test_a_command_that_is_too_long_is_not_sent(scripted: Scripted) -> None:
    guest, peer = scripted
    with pytest.raises(CannotStart, match="too long"):
        await guest.start(Command([b"x" * (1 << 20)], b"/"))
    result = await run(guest, Command([b"x" * (1 << 20)], b"/"), timeout=60)
    assert (result.outcome, result.code) == (Outcome.NOT_STARTED, 126)
    await pong(guest, peer)


async def test_output_comes_in_order_and_ends_with_both_outputs(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer)
    for kind, payload in ((wire.OUT, b"a"), (wire.OUT, b"b"), (wire.ERR, b"c"), (wire.OUT, b"d")):
        peer.send(kind, frame.stream, payload)
    peer.send(wire.EXIT, frame.stream, exit_payload(value=3))
    assert (await process.wait()).value == 3
    peer.send(wire.OUTEOF, frame.stream, b"\x83")
    peer.send(wire.ERR, frame.stream, b"late")
    peer.send(wire.OUTEOF, frame.stream, b"\x84")
    got = []
    while (piece := await process.read()) is not None:
        got.append((piece.fd, piece.data))
    assert got == [(1, b"ab"), (2, b"c"), (1, b"d"), (2, b"late")]
    process.release()
    process.release()
    assert (await peer.expect(Send.RELEASE)).stream == frame.stream
    await pong(guest, peer)


async def test_credit_is_given_back_only_for_what_was_read(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer)
    left = first_credit(frame)
    while left:
        piece = min(left, 65_536)
        peer.send(wire.OUT, frame.stream, bytes(piece))
        left -= piece
    await pong(guest, peer)  # nothing came before it
    read = 0
    while read < first_credit(frame):
        piece = await process.read()
        assert piece is not None
        read += len(piece.data)
    assert (await peer.expect(Send.CREDIT)).number >= first_credit(frame) // 4
    peer.send(wire.OUT, frame.stream, b"more")
    piece = await process.read()
    assert piece is not None and piece.data == b"more"


async def test_the_sum_of_all_credit_stays_bounded_with_as_many_streams_as_there_can_be(scripted: Scripted) -> None:
    guest, peer = scripted
    starting = [asyncio.create_task(guest.launch(TRUE)) for _ in range(MAX_STREAMS)]
    credits = {(frame := await peer.expect(Send.START)).stream: first_credit(frame) for _ in starting}
    processes = [await launch for launch in starting]
    assert sum(credits.values()) <= TOTAL
    assert min(credits.values()) >= 2048
    for stream in credits:  # and all of them flood and are read
        peer.send(wire.STARTED, stream, struct.pack(">I", 7))
    outstanding = dict(credits)
    for _ in range(4):
        for (stream, credit), process in zip(list(outstanding.items()), processes, strict=True):
            peer.send(wire.OUT, stream, bytes(min(credit, 65_536)))
            outstanding[stream] -= min(credit, 65_536)
            await peer.drain()
            assert await process.read() is not None
        pinging = asyncio.create_task(guest.ping())
        while (frame := await peer.receive()).kind != Send.PING:
            assert frame.kind == Send.CREDIT
            outstanding[frame.stream] += frame.number
        peer.send(wire.PONG, 0, frame.payload)
        await pinging
        assert sum(outstanding.values()) <= TOTAL
        assert min(outstanding.values()) > 0


async def test_a_released_command_does_not_block_on_its_output(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer)
    peer.send(wire.OUT, frame.stream, bytes(30_000))
    await pong(guest, peer)
    process.release()
    assert (await peer.expect(Send.CREDIT)).number >= 30_000
    assert await process.read() is None
    peer.send(wire.ERR, frame.stream, bytes(60_000))
    await peer.expect(Send.CREDIT)
    peer.send(wire.EXIT, frame.stream, exit_payload())
    await peer.expect(Send.RELEASE)


async def test_writes_within_the_credit_and_stops_at_exit(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer, WITH_STDIN)
    writing = asyncio.create_task(process.write(bytes(200_000)))
    assert len((await peer.expect(Send.DATA)).payload) == 4096
    await pong(guest, peer)
    peer.send(wire.CREDIT, frame.stream, struct.pack(">I", 70_000))
    assert len((await peer.expect(Send.DATA)).payload) == 70_000
    peer.send(wire.EXIT, frame.stream, exit_payload())
    await writing
    await process.write(b"dropped")
    process.close_stdin()
    await pong(guest, peer)


async def test_large_writes_share_frames_and_keep_their_order(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer, WITH_STDIN)
    peer.send(wire.CREDIT, frame.stream, struct.pack(">I", 1 << 20))
    await pong(guest, peer)
    written = b"".join(bytes([n]) * size for n, size in enumerate([65_536, 65_536, 10, 131_000, 65_536, 1]))
    for n in range(6):
        await process.write(bytes([n]) * written.count(n))
    process.close_stdin()
    sent = []
    while (got := await peer.receive()).kind == Send.DATA:
        sent.append(got.payload)
    assert got.kind == Send.EOF
    assert b"".join(sent) == written
    assert len(sent) == 2 and max(map(len, sent)) <= wire.MAX_FRAME


async def test_a_cancelled_write_leaves_the_stream_usable(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer, WITH_STDIN)
    writing = asyncio.create_task(process.write(bytes(5000)))
    await peer.expect(Send.DATA)
    writing.cancel()
    await asyncio.wait({writing})
    peer.send(wire.CREDIT, frame.stream, struct.pack(">I", 100))
    await process.write(b"again")
    assert (await peer.expect(Send.DATA)).payload == b"again"
    process.close_stdin()
    process.close_stdin()
    await peer.expect(Send.EOF)
    with pytest.raises(ValueError):
        await process.write(b"x")


async def test_a_cancelled_read_loses_nothing(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer)
    reading, waiting = asyncio.create_task(process.read()), asyncio.create_task(process.wait())
    await pong(guest, peer)
    peer.send(wire.OUT, frame.stream, b"here")
    reading.cancel()
    waiting.cancel()
    await asyncio.wait({reading, waiting})
    piece = await process.read()
    assert piece is not None and piece.data == b"here"


async def test_kill_answers_each_caller_and_holds_up_the_release(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer)
    killing = asyncio.create_task(process.kill(signal.SIGTERM, tree=False))
    kill = await peer.expect(Send.KILL)
    assert kill.payload[4:] == bytes([signal.SIGTERM, 0])
    again = asyncio.create_task(process.kill())
    second = await peer.expect(Send.KILL)
    assert second.payload[4:] == bytes([signal.SIGKILL, 1])
    peer.send(wire.GOT_KILLED, frame.stream, struct.pack(">IIII", second.number, 3, 5, 0))
    assert await again == Killed(3, 5, 0)
    peer.send(wire.EXIT, frame.stream, exit_payload(1, 15))
    assert (await process.wait()).kind is ExitKind.SIGNALED
    process.release()
    await pong(guest, peer)
    peer.send(wire.GOT_KILLED, frame.stream, struct.pack(">IIII", kill.number, 1, 1, 0))
    assert await killing == Killed(1, 1, 0)
    await peer.expect(Send.RELEASE)
    with pytest.raises(ValueError):
        await process.kill(65)


async def test_no_more_kills_are_asked_at_once_than_the_guest_takes(scripted: Scripted) -> None:
    guest, peer = scripted
    process, frame = await start(guest, peer)
    killing = [asyncio.create_task(process.kill()) for _ in range(6)]
    kills = [await peer.expect(Send.KILL) for _ in range(4)]
    await pong(guest, peer)
    for _ in range(2):
        peer.send(wire.GOT_KILLED, frame.stream, struct.pack(">IIII", kills.pop(0).number, 1, 1, 0))
        kills.append(await peer.expect(Send.KILL))
    for kill in kills:
        peer.send(wire.GOT_KILLED, frame.stream, struct.pack(">IIII", kill.number, 1, 1, 0))
    assert await asyncio.gather(*killing) == [Killed(1, 1, 0)] * 6


async def test_a_cancelled_start_kills_what_it_started(scripted: Scripted) -> None:
    guest, peer = scripted
    starting = asyncio.create_task(guest.start(TRUE))
    frame = await peer.expect(Send.START)
    starting.cancel()
    await asyncio.wait({starting})
    peer.send(wire.STARTED, frame.stream, struct.pack(">I", 9))
    kill = await peer.expect(Send.KILL)
    peer.send(wire.OUT, frame.stream, bytes(60_000))
    await peer.expect(Send.CREDIT)
    peer.send(wire.EXIT, frame.stream, exit_payload(1, 9))
    peer.send(wire.GOT_KILLED, frame.stream, struct.pack(">IIII", kill.number, 1, 1, 0))
    await peer.expect(Send.RELEASE)


async def test_run_keeps_the_first_bytes_and_drains_the_rest(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, limit=10, timeout=60))
    frame = await peer.started()
    peer.send(wire.OUT, frame.stream, b"0123456789")
    peer.send(wire.ERR, frame.stream, b"0123456789A")
    peer.send(wire.ERR, frame.stream, bytes(40_000))
    await peer.expect(Send.CREDIT)
    peer.send(wire.EXIT, frame.stream, exit_payload(1, 11))
    result = await running
    assert (result.stdout, result.stdout_truncated) == (b"0123456789", False)
    assert (result.stderr, result.stderr_truncated) == (b"0123456789", True)
    assert (result.outcome, result.code, result.signal) == (Outcome.SIGNALED, 139, 11)


@pytest.mark.parametrize("has_started", [True, False])
async def test_run_tells_that_it_was_stopped(scripted: Scripted, has_started: bool) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=60))
    frame = await (peer.started() if has_started else peer.expect(Send.START))
    peer.send(wire.EXIT, frame.stream, exit_payload(10))
    result = await running
    assert (result.outcome, result.code) == (Outcome.STOPPED, 137)


async def answer_kill(peer: Peer, frame: Frame, *, left: int = 0) -> None:
    answer(peer, frame, await peer.expect(Send.KILL), left=left)
    await peer.expect(Send.RELEASE)


def answer(peer: Peer, frame: Frame, kill: Frame, *, left: int = 0) -> None:
    assert kill.payload[4:] == bytes([signal.SIGKILL, 1])
    peer.send(wire.OUT, frame.stream, b" last words")
    peer.send(wire.GOT_KILLED, frame.stream, struct.pack(">IIII", kill.number, 2, 3, left))
    peer.send(wire.EXIT, frame.stream, exit_payload(1, 9))


async def test_run_kills_at_its_deadline_and_gives_the_output_so_far(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=0.05))
    frame = await peer.started()
    peer.send(wire.OUT, frame.stream, b"some")
    await answer_kill(peer, frame, left=1)
    result = await running
    assert (result.outcome, result.stdout, result.code, result.left) == (Outcome.TIMED_OUT, b"some last words", 137, 1)


async def test_run_gives_up_at_an_interrupt(scripted: Scripted) -> None:
    guest, peer = scripted
    interrupt = commands.Interrupt()
    for given_before in (False, True):
        running = asyncio.create_task(run(guest, TRUE, timeout=60, interrupt=interrupt))
        frame = await peer.started()
        assert interrupt.given is given_before
        interrupt.give()
        interrupt.give()
        await answer_kill(peer, frame)
        assert (await running).outcome is Outcome.INTERRUPTED


async def test_an_interrupt_may_meet_a_deadline() -> None:
    interrupt = commands.Interrupt()
    timer = asyncio.timeout(0)
    with pytest.raises(TimeoutError):
        async with timer:
            with interrupt.cuts(timer):
                asyncio.get_running_loop().call_soon(interrupt.give)  # after the timer, before this task is told
                await asyncio.Event().wait()


async def test_run_kills_at_its_deadline_what_starts_only_then(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=0))
    frame = await peer.started()
    await answer_kill(peer, frame)
    assert (await running).outcome is Outcome.TIMED_OUT


async def test_run_kills_when_cancelled_however_often(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, WITH_STDIN, stdin=bytes(100_000), timeout=60))
    frame = await peer.started()
    await peer.expect(Send.DATA)
    running.cancel()
    kill = await peer.expect(Send.KILL)
    running.cancel()
    await pong(guest, peer)
    assert not running.done()
    answer(peer, frame, kill)
    await peer.expect(Send.RELEASE)
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancelled_run_ends_when_the_guest_is_lost(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=60))
    await peer.started()
    running.cancel()
    await peer.expect(Send.KILL)
    peer.close()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_guest_that_does_not_answer_a_kill_is_lost(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "KILL_TIMEOUT", 0.05)
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=0.05))
    frame = await peer.started()
    peer.send(wire.OUT, frame.stream, b"some")
    with pytest.raises(RunLost, match="did not answer a kill") as caught:
        await running
    assert caught.value.stdout == b"some"
    assert await guest.lost == "the guest did not answer a kill"


async def test_a_lost_connection_raises_with_what_was_collected(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, timeout=60))
    frame = await peer.started()
    peer.send(wire.OUT, frame.stream, b"out")
    peer.send(wire.ERR, frame.stream, b"err")
    await peer.drain()
    peer.close()
    with pytest.raises(RunLost) as caught:
        await running
    assert isinstance(caught.value, GuestLost)
    assert (caught.value.stdout, caught.value.stderr) == (b"out", b"err")


async def test_a_guest_that_never_grants_credit_does_not_outlast_the_deadline(scripted: Scripted) -> None:
    guest, peer = scripted
    running = asyncio.create_task(run(guest, TRUE, stdin=bytes(1 << 20), timeout=0.05))
    frame = await peer.started()
    assert len((await peer.expect(Send.DATA)).payload) == 4096
    await answer_kill(peer, frame)
    assert (await running).outcome is Outcome.TIMED_OUT


async def test_a_refused_start_is_told(scripted: Scripted) -> None:
    guest, peer = scripted
    starting = asyncio.create_task(guest.start(TRUE))
    peer.send(wire.ERROR, (await peer.expect(Send.START)).stream, wire.string(b"too many streams"))
    with pytest.raises(CannotStart, match="too many streams"):
        await starting
    assert not guest.lost.done()
