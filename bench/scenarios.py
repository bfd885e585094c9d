"""What is measured. Every scenario interleaves the product with its baseline, so that both meet the same moments of the machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

from bench.client import Client
from bench.report import Row
from bench.samples import Samples, interleaved, timed
from bench.sides import Api, Baseline, give_through_guest, take_through_guest, through_api, through_guest
from bench.targets import target
from sandboxes.guest import Guest

BULK = 100_000_000  #: bytes
_AT_ONCE = 100
_FILE = "/work/bulk"
_FILL = ("sh", "-c", f"head -c {BULK} /dev/zero > {_FILE}")
_SOURCE = ("cat", _FILE)
# The shell stays: containerd closes the stdin of an exec as soon as nobody has its stdout open.
_SINK = ("sh", "-c", "cat > /dev/null || exit")
_TO_FILE = ("sh", "-c", f"cat > {_FILE} || exit")


@dataclass(frozen=True)
class Sides:
    """One runtime, with one living sandbox on each side."""

    engine: str
    runtime: str
    bare: Baseline
    guest: Guest
    api: Api
    lease: str

    def row(self, name: str, samples: Samples, bare: Samples | None = None, most: float | None = None) -> Row:
        """``most``: the target of a row that ``bench.targets`` has none for."""
        return Row(self.runtime, name, samples, bare, most if most is not None else target(self.engine, self.runtime, name))


async def latency(sides: Sides, rounds: int) -> list[Row]:
    client, path = sides.api.client, f"/v1/sandboxes/{sides.lease}"

    found = await interleaved(
        rounds,
        {
            "bare": lambda: sides.bare.exec("true"),
            "guest": lambda: through_guest(sides.guest, "true"),
            "api": lambda: through_api(client, sides.lease, "true"),
            "get": lambda: client.call("GET", path),
            "list": lambda: client.call("GET", "/v1/sandboxes"),
        },
    )
    return [
        sides.row("true, guest", found["guest"], found["bare"]),
        sides.row("true, API", found["api"], found["bare"]),
        sides.row("get a lease, API", found["get"]),
        sides.row("list leases, API", found["list"]),
    ]


async def creation(sides: Sides, rounds: int) -> list[Row]:
    api, bare = sides.api, sides.bare
    part, whole, ours, deleted = Samples(), Samples(), Samples(), Samples()
    for number in range(-1, rounds):
        await _some_time()
        first, all_of_it = await bare.create()
        await _some_time()
        began = perf_counter()
        lease = await api.lease(sides.runtime)
        await through_api(api.client, lease, "true")
        leased = perf_counter() - began
        ended = await timed(lambda lease=lease: api.end(lease))  # type: ignore[misc]
        if number >= 0:
            for samples, seconds in ((part, first), (whole, all_of_it), (ours, leased), (deleted, ended)):
                samples.add(seconds * 1000)
    return [
        sides.row("create -> first result, API", ours, whole),
        sides.row(f"  of the bare one: {bare.part}", part),
        sides.row("end, API", deleted),
    ]


async def _some_time() -> None:
    """A kubelet looks at its pods once a second. Else each side would begin just after it had seen the other's end."""
    await asyncio.sleep(random.random())  # noqa: S311


async def bulk(sides: Sides, rounds: int) -> list[Row]:
    """Streams of a command through the guest, files through the API; each against the bare exec that does the same."""
    bare = sides.bare
    path = f"/v1/sandboxes/{sides.lease}/fs?path=bulk"

    async def bare_take(*argv: str) -> None:
        assert await bare.take(*argv) == BULK

    async def download() -> None:
        assert await sides.api.client.download(path) == BULK

    await bare.exec(*_FILL)
    await through_guest(sides.guest, *_FILL)
    out = await interleaved(
        rounds, {"bare": lambda: bare_take(*_SOURCE), "ours": lambda: take_through_guest(sides.guest, BULK, *_SOURCE)}, size=BULK
    )
    into = await interleaved(
        rounds, {"bare": lambda: bare.give(BULK, *_SINK), "ours": lambda: give_through_guest(sides.guest, BULK, *_SINK)}, size=BULK
    )
    await sides.api.reconnect()
    before = sides.api.server.reset_peak()
    write = await interleaved(
        rounds,
        {"bare": lambda: bare.give(BULK, *_TO_FILE), "ours": lambda: sides.api.client.upload(path, BULK)},
        size=BULK,
    )
    read = await interleaved(rounds, {"bare": lambda: bare_take(*_SOURCE), "ours": download}, size=BULK)
    grown = Samples("MB")
    grown.add((sides.api.server.peak() - before) / 1e6)
    return [
        sides.row("100 MB out, guest", out["ours"], out["bare"]),
        sides.row("100 MB in, guest", into["ours"], into["bare"]),
        sides.row("100 MB file read, API", read["ours"], read["bare"]),
        sides.row("100 MB file write, API", write["ours"], write["bare"]),
        sides.row("  the server grew by", grown),
    ]


async def at_once(sides: Sides, rounds: int) -> list[Row]:
    """Many commands in one sandbox through the API."""
    rows = []
    async with _connections(sides.api, _AT_ONCE) as clients:
        await asyncio.gather(*(through_api(client, sides.lease, "true") for client in clients))
        sleeps = Samples("s")
        for _ in range(max(1, rounds // 10)):
            sleeps.add(await timed(lambda: asyncio.gather(*(through_api(client, sides.lease, "sleep", "1") for client in clients))))
        rows.append(sides.row(f"{_AT_ONCE} x sleep 1 at once, API", sleeps))
        for count in (1, 16, 64):
            rate, each = Samples("/s"), Samples()
            for _ in range(max(1, rounds // 10)):
                rate.add(await _flood(clients[:count], sides.lease, each))
            rows.append(sides.row(f"true, API, {count} at once", rate))
            rows.append(sides.row("  each", each))
    return rows


async def _flood(clients: list[Client], lease: str, each: Samples, seconds: float = 1.0) -> float:
    """Commands a second when every client runs one after the other."""
    count, began = 0, perf_counter()

    async def go_on(client: Client) -> None:
        nonlocal count
        while perf_counter() < began + seconds:
            each.add(await timed(lambda: through_api(client, lease, "true")) * 1000)
            count += 1

    await asyncio.gather(*(go_on(client) for client in clients))
    return count / (perf_counter() - began)


@asynccontextmanager
async def _connections(api: Api, count: int) -> AsyncIterator[list[Client]]:
    clients = [await api.connect() for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


SCENARIOS = {"latency": latency, "creation": creation, "bulk": bulk, "at-once": at_once}
