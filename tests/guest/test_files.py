"""File operations against a scripted guest."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import AsyncIterator

import pytest

from sandboxes.errors import FileError, GuestLost, PathRefused
from sandboxes.guest import Guest, Stat
from sandboxes.guest import protocol as wire
from sandboxes.guest.protocol import Send

from .peer import FILE_STAT, Frame, Peer, entry, exit_payload

Scripted = tuple[Guest, Peer]
STAT = Stat(0o100644, 5, 7)


async def pong(guest: Guest, peer: Peer) -> None:
    pinging = asyncio.create_task(guest.ping())
    peer.send(wire.PONG, 0, (await peer.expect(Send.PING)).payload)
    await pinging


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def credit_of(opening: Frame) -> int:
    return opening.number


async def test_stat(scripted: Scripted) -> None:
    guest, peer = scripted
    asking = asyncio.create_task(guest.stat(b"a/\xff"))
    request = await peer.expect(Send.STAT)
    assert request.payload == wire.string(b"a/\xff")
    peer.send(wire.EXIT, request.stream, exit_payload(text=FILE_STAT))
    assert await asking == STAT
    assert STAT.is_file and not STAT.is_dir


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [(7, errno.ENOENT, FileError), (8, 0, PathRefused), (9, 0, PathRefused)],
)
@pytest.mark.parametrize("name", ["stat", "list", "read", "mkdir", "remove", "write"])
async def test_failures(scripted: Scripted, name: str, kind: int, value: int, expected: type[Exception]) -> None:
    guest, peer = scripted
    call = guest.write(b"f", chunks()) if name == "write" else getattr(guest, name)(b"f")
    asking = asyncio.create_task(call)
    peer.send(wire.EXIT, (await peer.receive()).stream, exit_payload(kind, value))
    with pytest.raises(expected) as caught:
        await asking
    if isinstance(caught.value, FileError):
        assert (caught.value.errno, caught.value.detail) == (errno.ENOENT, "No such file or directory")
    assert not guest.lost.done()


@pytest.mark.parametrize("payload", [exit_payload(text=b"short"), exit_payload(kind=5), exit_payload(kind=7, value=-5), b""])
async def test_a_nonsensical_end_is_a_violation(scripted: Scripted, payload: bytes) -> None:
    guest, peer = scripted
    asking = asyncio.create_task(guest.stat(b"f"))
    peer.send(wire.EXIT, (await peer.receive()).stream, payload)
    with pytest.raises(GuestLost):
        await asking


async def test_mkdir_remove_rename(scripted: Scripted) -> None:
    guest, peer = scripted
    for call, kind, payload in (
        (guest.mkdir(b"d"), Send.MKDIR, struct.pack(">I", 0o755) + wire.string(b"d")),
        (guest.remove(b"d", recursive=True), Send.REMOVE, b"\1" + wire.string(b"d")),
        (guest.rename(b"a", b"b"), Send.RENAME, wire.string(b"a") + wire.string(b"b")),
    ):
        asking = asyncio.create_task(call)
        request = await peer.expect(kind)
        assert request.payload == payload
        peer.send(wire.EXIT, request.stream, exit_payload())
        await asking


async def test_a_path_that_no_frame_can_carry(scripted: Scripted) -> None:
    guest, _ = scripted
    for call in (guest.stat(bytes(wire.MAX_FRAME)), guest.read(bytes(wire.MAX_FRAME)), guest.write(bytes(wire.MAX_FRAME), chunks())):
        with pytest.raises(FileError) as caught:
            await call
        assert caught.value.errno == errno.ENAMETOOLONG


async def test_list(scripted: Scripted) -> None:
    guest, peer = scripted
    asking = asyncio.create_task(guest.list(b"."))
    request = await peer.expect(Send.LIST)
    listing = entry(b"b") + entry(b"\xff\n") + entry(b".a", 0o040755, 0)
    for part in (listing[:10], listing[10:40], listing[40:]):
        peer.send(wire.OUT, request.stream, part)
    peer.send(wire.EXIT, request.stream, exit_payload())
    assert [(e.name, e.stat.is_dir) for e in await asking] == [(b"b", False), (b"\xff\n", False), (b".a", True)]


@pytest.mark.parametrize("payload", [entry(b""), entry(b".."), entry(b"a/b"), entry(b"a\0")])
async def test_a_listing_cannot_lead_out_of_its_directory(scripted: Scripted, payload: bytes) -> None:
    guest, peer = scripted
    asking = asyncio.create_task(guest.list(b"."))
    peer.send(wire.OUT, (await peer.expect(Send.LIST)).stream, payload)
    with pytest.raises(GuestLost, match="broke the protocol"):
        await asking


@pytest.mark.parametrize("payload", [entry(b"name")[:-1], b"short"])
async def test_a_listing_that_ends_within_an_entry_is_a_violation(scripted: Scripted, payload: bytes) -> None:
    guest, peer = scripted
    asking = asyncio.create_task(guest.list(b"."))
    request = await peer.expect(Send.LIST)
    peer.send(wire.OUT, request.stream, payload)
    peer.send(wire.EXIT, request.stream, exit_payload())
    with pytest.raises(GuestLost, match="within an entry"):
        await asking


async def test_an_endless_listing_is_stopped(scripted: Scripted) -> None:
    guest, peer = scripted
    asking = asyncio.create_task(guest.list(b"."))
    request = await peer.expect(Send.LIST)
    credit = credit_of(request)
    part = b"".join(entry(b"%04d" % i) for i in range(2000))
    while True:
        while credit < len(part):
            frame = await peer.receive()
            if frame.kind == Send.RELEASE:
                break
            credit += frame.number
        else:
            peer.send(wire.OUT, request.stream, part)
            credit -= len(part)
            continue
        break
    with pytest.raises(FileError) as caught:
        await asking
    assert caught.value.errno == errno.EOVERFLOW
    peer.send(wire.EXIT, request.stream, exit_payload(7, errno.ECANCELED))
    await pong(guest, peer)


async def test_read_returns_once_the_file_is_open(scripted: Scripted) -> None:
    guest, peer = scripted
    opening = asyncio.create_task(guest.read(b"f"))
    request = await peer.expect(Send.READ)
    peer.send(wire.OPENED, request.stream, FILE_STAT)
    reader = await opening
    assert reader.stat == STAT
    peer.send(wire.OUT, request.stream, b"hello")
    peer.send(wire.EXIT, request.stream, exit_payload(text=FILE_STAT))
    assert [chunk async for chunk in reader] == [b"hello"]
    await reader.aclose()
    await pong(guest, peer)


async def test_read_fails_in_the_middle(scripted: Scripted) -> None:
    guest, peer = scripted
    opening = asyncio.create_task(guest.read(b"f"))
    request = await peer.expect(Send.READ)
    peer.send(wire.OPENED, request.stream, FILE_STAT)
    peer.send(wire.OUT, request.stream, b"he")
    peer.send(wire.EXIT, request.stream, exit_payload(7, errno.EIO))
    reader = await opening
    assert await anext(reader) == b"he"
    with pytest.raises(FileError):
        await anext(reader)


async def test_a_reader_that_is_closed_early_stops_the_guest(scripted: Scripted) -> None:
    guest, peer = scripted
    opening = asyncio.create_task(guest.read(b"f"))
    request = await peer.expect(Send.READ)
    peer.send(wire.OPENED, request.stream, FILE_STAT)
    reader = await opening
    await reader.aclose()
    await reader.aclose()
    assert (await peer.expect(Send.RELEASE)).stream == request.stream
    peer.send(wire.OUT, request.stream, bytes(65_536))
    peer.send(wire.EXIT, request.stream, exit_payload(7, errno.ECANCELED))
    await pong(guest, peer)
    assert [chunk async for chunk in reader] == []


@pytest.mark.parametrize(
    "frames",
    [
        [(wire.OUT, b"x")],
        [(wire.EXIT, exit_payload())],
        [(wire.OPENED, FILE_STAT), (wire.OPENED, FILE_STAT)],
        [(wire.OPENED, FILE_STAT), (wire.OUT, b"")],
        [(wire.OPENED, FILE_STAT), (wire.ERR, b"x")],
        [(wire.OPENED, FILE_STAT), (wire.STARTED, bytes(4))],
        [(wire.OPENED, b"short")],
        [(wire.OPENED, FILE_STAT)] + [(wire.OUT, bytes(65_536))] * 5,
    ],
)
async def test_a_nonsensical_read_is_a_violation(scripted: Scripted, frames: list[tuple[int, bytes]]) -> None:
    guest, peer = scripted
    opening = asyncio.create_task(guest.read(b"f"))
    request = await peer.expect(Send.READ)
    for kind, payload in frames:
        peer.send(kind, request.stream, payload)
    assert "broke the protocol" in await guest.lost
    await asyncio.wait({opening})
    with pytest.raises(GuestLost):
        async for _ in await opening:
            pass


async def test_write_within_the_credit(scripted: Scripted) -> None:
    guest, peer = scripted
    writing = asyncio.create_task(guest.write(b"f", chunks(b"", bytes(5000), b"end"), mode=0o600))
    request = await peer.expect(Send.WRITE)
    assert request.payload == struct.pack(">I", 0o600) + wire.string(b"f")
    assert len((await peer.expect(Send.DATA)).payload) == 4096
    await pong(guest, peer)
    peer.send(wire.CREDIT, request.stream, struct.pack(">I", 1 << 20))
    assert len((await peer.expect(Send.DATA)).payload) == 5000 - 4096
    assert (await peer.expect(Send.DATA)).payload == b"end"
    await peer.expect(Send.EOF)
    peer.send(wire.EXIT, request.stream, exit_payload(text=FILE_STAT))
    assert await writing == STAT


async def test_write_ends_at_a_failure_while_it_waits_for_credit(scripted: Scripted) -> None:
    guest, peer = scripted
    writing = asyncio.create_task(guest.write(b"f", chunks(bytes(5000))))
    request = await peer.expect(Send.WRITE)
    await peer.expect(Send.DATA)
    peer.send(wire.EXIT, request.stream, exit_payload(7, errno.ENOSPC))
    with pytest.raises(FileError) as caught:
        await writing
    assert caught.value.errno == errno.ENOSPC
    await pong(guest, peer)


async def test_a_cancelled_write_is_aborted(scripted: Scripted) -> None:
    guest, peer = scripted
    writing = asyncio.create_task(guest.write(b"f", chunks(bytes(5000))))
    request = await peer.expect(Send.WRITE)
    await peer.expect(Send.DATA)
    writing.cancel()
    assert (await peer.expect(Send.RELEASE)).stream == request.stream
    peer.send(wire.CREDIT, request.stream, struct.pack(">I", 4096))
    peer.send(wire.EXIT, request.stream, exit_payload(7, errno.ECANCELED))
    await pong(guest, peer)
    assert writing.cancelled()


async def test_a_write_whose_source_fails_is_aborted(scripted: Scripted) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"part"
        raise ConnectionError("the client went away")

    guest, peer = scripted
    writing = asyncio.create_task(guest.write(b"f", failing()))
    await peer.expect(Send.WRITE)
    await peer.expect(Send.DATA)
    await peer.expect(Send.RELEASE)
    with pytest.raises(ConnectionError):
        await writing
