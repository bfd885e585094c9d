"""What the hub makes of a guest that falls silent. The guests are played: a real one is silent only when it is dead or very slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from guest.peer import Peer, hello
from harness.waiting import PATIENCE

from sandboxes.errors import EngineUnavailable
from sandboxes.guest import Guest
from sandboxes.guest import protocol as wire
from sandboxes.guest.protocol import Send
from sandboxes.guest.transport import open_socket_stream
from sandboxes.lifecycle import hub as hub_module
from sandboxes.lifecycle.hub import Hub

NAME = "m-0123456789abcdef01234567-0001"


class Reaching:
    """The part of an engine that reaches guests: every connection leads to a peer that the test plays, once the test lets it in."""

    def __init__(self) -> None:
        self._wanted: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
        self._peers: list[Peer] = []

    def watch(self, died: Any) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None:
        for peer in self._peers:
            peer.close()

    async def connect(self, _: str) -> Any:
        stream: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._wanted.put_nowait(stream)
        return await stream

    async def wanted(self) -> asyncio.Future[Any]:
        """The next connection that somebody waits for."""
        return await asyncio.wait_for(self._wanted.get(), PATIENCE)

    async def let_in(self, wanted: asyncio.Future[Any]) -> Peer:
        peer, theirs = await Peer.pair()
        self._peers.append(peer)
        peer.send(wire.HELLO, 0, hello())
        wanted.set_result(await open_socket_stream(theirs))
        await peer.expect(Send.HELLO)
        return peer


async def answer(peer: Peer) -> None:
    """Every ping, from now on."""
    while True:
        peer.send(wire.PONG, 0, (await peer.expect(Send.PING)).payload)


async def reach(hub: Hub, engine: Reaching) -> tuple[Guest, Peer]:
    """The first connection."""
    opening = asyncio.create_task(hub.guest(NAME))
    peer = await engine.let_in(await engine.wanted())
    return await opening, peer


@pytest.fixture
def engine() -> Reaching:
    return Reaching()


@pytest.fixture
async def hub(engine: Reaching, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    monkeypatch.setattr(hub_module, "PING_EVERY", 0.2)
    hub = Hub(engine)  # type: ignore[arg-type]
    await hub.open()
    yield hub
    await hub.close()


async def test_a_connection_that_was_only_slow_is_kept(hub: Hub, engine: Reaching, monkeypatch: pytest.MonkeyPatch):
    """Commands run on it."""
    guest, slow = await reach(hub, engine)
    wanted = await engine.wanted()  # a ping was not answered in time
    monkeypatch.setattr(hub_module, "PING_EVERY", PATIENCE)
    answering = asyncio.create_task(answer(slow))
    fresh = await engine.let_in(wanted)
    await asyncio.wait_for(fresh.ended(), PATIENCE)
    assert await hub.guest(NAME) is guest
    assert not guest.lost.done()
    answering.cancel()


async def test_a_connection_that_somebody_waits_for_is_kept(hub: Hub, engine: Reaching):
    guest, _ = await reach(hub, engine)
    to_look = await engine.wanted()
    guest.close()
    waiting = asyncio.create_task(hub.guest(NAME))
    to_use = await engine.wanted()
    await asyncio.wait_for((await engine.let_in(to_look)).ended(), PATIENCE)
    answering = asyncio.create_task(answer(await engine.let_in(to_use)))
    assert not (await waiting).lost.done()
    answering.cancel()


async def test_time_in_which_the_engine_cannot_be_asked_does_not_count(hub: Hub, engine: Reaching, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub_module, "SILENCE_MOST", 1.5)
    guest, _ = await reach(hub, engine)
    for _ in range(3):  # a second apart
        (await engine.wanted()).set_exception(EngineUnavailable("away"))
    fresh = await engine.let_in(await engine.wanted())
    answering = asyncio.create_task(answer(fresh))
    await asyncio.wait_for(guest.lost, PATIENCE)
    assert not (await hub.guest(NAME)).lost.done()
    answering.cancel()


async def test_a_connection_that_stays_silent_is_replaced(hub: Hub, engine: Reaching):
    guest, _ = await reach(hub, engine)
    fresh = await engine.let_in(await engine.wanted())
    answering = asyncio.create_task(answer(fresh))
    await asyncio.wait_for(guest.lost, PATIENCE)
    assert await hub.guest(NAME) is not guest
    answering.cancel()
