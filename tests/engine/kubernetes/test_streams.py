"""Streams over the WebSocket of an exec: bytes, back-pressure both ways, and every way in which it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import WSMsgType, web
from harness.waiting import PATIENCE

from sandboxes.engine.kubernetes import KubernetesConfig
from sandboxes.engine.kubernetes import client as client_module
from sandboxes.engine.kubernetes import connections as connections_module
from sandboxes.engine.kubernetes import streams as streams_module
from sandboxes.engine.kubernetes.client import Cluster, Refused
from sandboxes.engine.kubernetes.connections import Connections
from sandboxes.engine.kubernetes.streams import NoGuest
from sandboxes.errors import EngineError, EngineUnavailable

from .conftest import CORE, Api, ended, status

HELLO = b"\0\0\0\x10hello"


class Sink:
    """A receiver that keeps everything."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._more = asyncio.Event()

    def data_received(self, data: memoryview) -> None:
        assert not self.lost.done()
        self.data += data
        self._more.set()

    def stream_lost(self, reason: str) -> None:
        self.lost.set_result(reason)

    async def until(self, size: int) -> bytes:
        async with asyncio.timeout(PATIENCE):
            while len(self.data) < size:
                self._more.clear()
                await self._more.wait()
        return bytes(self.data)


@pytest.fixture
async def connections(cluster: Cluster, config: KubernetesConfig) -> AsyncIterator[Connections]:
    connections = Connections(cluster, config.guest)
    connections.load()
    yield connections
    await connections.close()


async def stdin(socket: web.WebSocketResponse) -> AsyncIterator[bytes]:
    async for message in socket:
        if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
            yield message.data[1:]


async def greet(socket: web.WebSocketResponse) -> None:
    await socket.send_bytes(b"\1G")
    await socket.send_bytes(b"\1" + HELLO)


async def echo(socket: web.WebSocketResponse) -> None:
    await greet(socket)
    async for data in stdin(socket):
        await socket.send_bytes(b"\1" + data)


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_bytes_go_both_ways(api: Api, connections: Connections, protocol: str):
    api.protocols = [protocol]
    api.on_exec("m", echo)
    stream = await connections.make("m")
    sink = Sink()
    stream.attach(sink)
    sent = bytes(range(256)) * 32768  # 8 MiB
    for start in range(0, len(sent), 100_000):
        stream.write(memoryview(bytearray(sent[start : start + 100_000])))
        await stream.drain()
    assert await sink.until(len(HELLO) + len(sent)) == HELLO + sent
    stream.close()
    assert await asyncio.wait_for(sink.lost, PATIENCE) == "the connection was closed"


async def test_the_guest_is_given_when_it_is_asked_for(api: Api, connections: Connections, config: KubernetesConfig):
    program = config.guest.read_bytes()
    got = bytearray()

    async def peer(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\1")  # a bare channel byte comes first
        await socket.send_bytes(b"\1U")
        async for data in stdin(socket):
            got.extend(data)
            if len(got) == len(program):
                await socket.send_bytes(b"\1" + HELLO)

    api.on_exec("m", peer)
    stream = await connections.make("m")
    assert bytes(got) == program
    sink = Sink()
    stream.attach(sink)
    await sink.until(len(HELLO))
    (request,) = api.requests
    assert request.query.getall("command")[-1] == str(len(program))
    assert request.query.getall("command")[:2] == ["sh", "-c"]


async def test_noise_is_ignored(api: Api, connections: Connections):
    async def peer(socket: web.WebSocketResponse) -> None:
        for noise in (b"", b"\1", b"\2", b"\x09x", b"\xffx"):
            await socket.send_bytes(noise)
        await socket.send_str("text")
        await echo(socket)

    api.on_exec("m", peer)
    sink = Sink()
    (await connections.make("m")).attach(sink)
    assert await sink.until(len(HELLO)) == HELLO


async def test_a_container_that_is_not_up_yet(api: Api, connections: Connections):
    async def peer(socket: web.WebSocketResponse) -> None:
        message = 'Internal error occurred: unable to upgrade connection: container not found ("sandbox")'
        await socket.send_bytes(ended(status="Failure", reason="InternalError", message=message))

    api.on_exec("m", peer)
    with pytest.raises(NoGuest, match="container not found") as failure:
        await connections.make("m")
    assert failure.value.not_up_yet


async def test_what_the_exec_complained_about_is_told(api: Api, connections: Connections):
    async def peer(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\2sh: 9: /.sandboxhub/guest: Permission denied\n")
        causes = {"causes": [{"reason": "ExitCode", "message": "126"}]}
        await socket.send_bytes(ended(status="Failure", reason="NonZeroExitCode", message="x", details=causes))

    api.on_exec("m", peer)
    with pytest.raises(NoGuest, match="Permission denied") as failure:
        await connections.make("m")
    assert not failure.value.not_up_yet


@pytest.mark.parametrize("after", ["before hello", "after hello"])
async def test_a_cut_connection(api: Api, connections: Connections, after: str):
    async def peer(socket: web.WebSocketResponse) -> None:
        if after == "after hello":
            await greet(socket)
        transport = socket.get_extra_info("transport")
        transport.abort()

    api.on_exec("m", peer)
    if after == "before hello":
        with pytest.raises(NoGuest, match="before the guest said hello"):
            await connections.make("m")
    else:
        try:
            stream = await connections.make("m")
        except NoGuest:
            return  # the cut overtook the hello
        sink = Sink()
        stream.attach(sink)
        assert "broke" in await asyncio.wait_for(sink.lost, PATIENCE)
        stream.write(b"into the void")
        await stream.drain()


async def test_the_reason_of_the_end(api: Api, connections: Connections):
    async def peer(socket: web.WebSocketResponse) -> None:
        await greet(socket)
        await anext(stdin(socket))
        await socket.send_bytes(ended(status="Failure", reason="InternalError", message="the node went away"))

    api.on_exec("m", peer)
    stream = await connections.make("m")
    sink = Sink()
    stream.attach(sink)
    stream.write(b"x")
    assert "the node went away" in await asyncio.wait_for(sink.lost, PATIENCE)


async def test_a_peer_that_does_not_read_stops_the_writer(api: Api, connections: Connections):
    go_on = asyncio.Event()

    async def peer(socket: web.WebSocketResponse) -> None:
        await greet(socket)
        await go_on.wait()

    api.on_exec("m", peer)
    stream = await connections.make("m")
    sink = Sink()
    stream.attach(sink)

    async def flood() -> None:
        while stream.closed is None:
            stream.write(bytes(64 << 10))
            await stream.drain()

    flooding = asyncio.create_task(flood())
    while len(stream._queue) <= 256 << 10:  # what the sockets take
        await asyncio.sleep(0)
    assert not flooding.done()
    stream.close()  # and this does not wait for the peer
    await asyncio.wait_for(flooding, PATIENCE)
    assert stream.closed is not None
    await asyncio.wait_for(asyncio.shield(stream.closed), PATIENCE)
    go_on.set()


async def test_a_stream_that_nobody_reads_stops_the_peer(api: Api, connections: Connections):
    sent = 0
    stuck = asyncio.Event()

    async def peer(socket: web.WebSocketResponse) -> None:
        nonlocal sent
        await greet(socket)
        while True:
            sending = asyncio.ensure_future(socket.send_bytes(b"\1" + bytes(256 << 10)))
            done, _ = await asyncio.wait([sending], timeout=2)
            if not done:
                stuck.set()
                await sending
            sent += 256 << 10

    api.on_exec("m", peer)
    stream = await connections.make("m")
    await asyncio.wait_for(stuck.wait(), PATIENCE)
    assert sent < 64 << 20
    sink = Sink()
    stream.attach(sink)
    await sink.until(sent)
    stream.close()


async def test_many_at_once_wait_for_each_other(api: Api, connections: Connections):
    """More than some 30 starts at once wedge a gVisor pod."""
    now = most = 0
    full = asyncio.Event()

    async def peer(socket: web.WebSocketResponse) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 8:
            full.set()
        await full.wait()
        now -= 1
        await echo(socket)

    api.on_exec("m", peer)
    streams = await asyncio.gather(*(connections.make("m") for _ in range(40)))
    assert (len(streams), most) == (40, 8)


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_a_refused_handshake(api: Api, connections: Connections, code: int):
    async def refuse(_: web.Request) -> web.Response:
        return status(code, "")

    api.answers[f"{CORE}/pods/m/exec"] = refuse
    with pytest.raises(Refused) as failure:
        await connections.make("m")
    assert failure.value.status == code


async def test_a_renewed_token_is_read_again(api: Api, connections: Connections, token):
    async def only_second(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != "Bearer second":
            token.write_text("second")
            return status(401, "Unauthorized")
        socket = web.WebSocketResponse(protocols=api.protocols)
        await socket.prepare(request)
        await echo(socket)
        return socket

    api.answers[f"{CORE}/pods/m/exec"] = only_second
    (await connections.make("m")).close()
    assert len(api.requests) == 2


async def test_a_server_of_unknown_protocol(api: Api, connections: Connections):
    api.protocols = []
    api.on_exec("m", echo)
    with pytest.raises(EngineError, match="no version of the exec protocol"):
        await connections.make("m")


async def test_a_node_that_does_not_answer(api: Api, connections: Connections, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "_HANDSHAKE_TIMEOUT", 0.2)
    let_go = asyncio.Event()

    async def silence(_: web.Request) -> web.Response:
        await let_go.wait()
        return status(500, "")

    api.answers[f"{CORE}/pods/m/exec"] = silence
    with pytest.raises(EngineUnavailable, match="does not answer"):
        await connections.make("m")
    let_go.set()


@pytest.mark.parametrize("begins", [False, True])
async def test_whose_silence_it_is(api: Api, connections: Connections, begins: bool, monkeypatch: pytest.MonkeyPatch):
    """That of a node which does not begin an exec says nothing about the guest."""
    monkeypatch.setattr(streams_module, "_NODE_ANSWERS", PATIENCE if begins else 0.2)
    monkeypatch.setattr(connections_module, "_ANSWER_TIMEOUT", 0.2 if begins else PATIENCE)

    async def peer(socket: web.WebSocketResponse) -> None:
        if begins:
            await socket.send_bytes(b"\1G")
        async for _ in stdin(socket):
            pass

    api.on_exec("m", peer)
    with pytest.raises(NoGuest if begins else EngineUnavailable, match="does not answer"):
        await connections.make("m")


async def test_what_answers_is_no_guest(api: Api, connections: Connections):
    async def peer(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\1Welcome!")
        async for _ in stdin(socket):
            pass

    api.on_exec("m", peer)
    with pytest.raises(NoGuest, match="something else"):
        await connections.make("m")


async def test_no_server(config: KubernetesConfig, tmp_path):
    config.kubeconfig.write_text(config.kubeconfig.read_text().replace("http://127.0.0.1:", "http://127.0.0.1:1#"))
    cluster = Cluster(config)
    await cluster.open()
    connections = Connections(cluster, config.guest)
    with pytest.raises(EngineUnavailable):
        await connections.make("m")
    await cluster.close()
