"""Terminals: how long a keystroke takes to be shown, and what a flood costs. The numbers of the acceptance checks are 1 and 25."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, sleep

from bench.client import Client
from bench.oci import Containers
from bench.report import Row
from bench.samples import Samples
from bench.scenarios import Sides
from bench.sides import through_api
from bench.websocket import Terminal

MEMORY_MOST = 16.0  #: MB that the server may grow by for a client that is slow
BESIDE_MOST = 100.0  #: ms, echo beside a flood
BUSY_MOST = 150.0  #: ms, echo of 200 terminals beside 50 commands a second, and while the database is locked
_SLOW = 50_000  #: bytes a second
_MOST = 200
_KEYS = 2.0  #: a second, of each terminal
_COMMANDS = 50  #: a second
_LOCKED = 5.0  #: seconds


async def terminals(sides: Sides, rounds: int) -> list[Row]:
    """``rounds`` scales the times: 30 is the full minute of the flood."""
    seconds = max(4.0, rounds / 3)
    rows: list[Row] = []
    bare = Samples()
    async with _open(sides, 1) as (alone,):
        assert isinstance(sides.bare, Containers)
        with sides.bare.terminal("sh", "-c", "stty raw -echo; printf '<%s>' echo; exec cat") as pty:
            pty.until(b"<echo>")
            ours = Samples()
            for _ in range(20 * rounds):
                bare.add(pty.echo() * 1000)
                ours.add(await alone.echo() * 1000)
    rows.append(sides.row("echo, 1 terminal", ours, bare))
    async with _open(sides, 50) as some:
        rows.append(sides.row("echo, 50 terminals", await _typing(some, seconds), bare))
        rows += await _flood(sides, some[:5], 2.0 * rounds)
    async with _open(sides, _MOST) as many:
        rows.append(sides.row(f"echo, {_MOST} terminals", await _typing(many, seconds), bare))
        rows += await _busy(sides, many, seconds)
    await sides.api.reconnect()
    return rows


async def _flood(sides: Sides, beside: list[Terminal], seconds: float) -> list[Row]:
    """A program that writes without end, and a client that reads slowly."""
    server = sides.api.server
    async with _connection(sides) as client:
        flood = await Terminal.open(client, server.port, sides.lease)
    before = server.reset_peak()
    flood.type(b"stty raw; exec cat /dev/zero\n")
    reading = asyncio.create_task(_read_slowly(flood))
    try:
        echo = await _typing(beside, seconds)
    finally:
        reading.cancel()
        flood.close()
    grown = Samples("MB")
    grown.add((server.peak() - before) / 1e6)
    return [
        *_with_p95(sides, "echo beside a flood that is read slowly", echo, BESIDE_MOST),
        sides.row(f"  the server grew in {seconds:.0f} s by", grown, most=MEMORY_MOST),
    ]


async def _read_slowly(terminal: Terminal) -> None:
    began, taken = perf_counter(), 0
    while True:
        taken += len(await terminal.receive())
        await asyncio.sleep(max(0.0, began + taken / _SLOW - perf_counter()))


async def _busy(sides: Sides, many: list[Terminal], seconds: float) -> list[Row]:
    """Commands at a steady rate beside the terminals. On SQLite then nothing can be written for a while; what waited comes at once."""
    waits, done = Samples(), asyncio.Event()
    async with contextlib.AsyncExitStack() as after:
        clients = [await after.enter_async_context(_connection(sides)) for _ in range(_COMMANDS)]
        commanding = [asyncio.create_task(_command_each_second(client, sides.lease, done, waits)) for client in clients]
        echo = await _typing(many, seconds)
        each = Samples()
        each.values = waits.values.copy()  # what comes later waits for the database
        rows = [*_with_p95(sides, f"echo, {_MOST} terminals, {_COMMANDS} execs/s", echo, BUSY_MOST), sides.row("  each exec", each)]
        if (path := sides.api.server.sqlite) is not None:
            locking = asyncio.create_task(asyncio.to_thread(_lock, path, _LOCKED))
            rows += _with_p95(sides, "  while the database takes no writes", await _typing(many, _LOCKED), BUSY_MOST)
            await locking
            rows.append(sides.row("  while what waited for it runs", await _typing(many, _LOCKED)))
        done.set()
        await asyncio.gather(*commanding)
    return rows


async def _command_each_second(client: Client, lease: str, done: asyncio.Event, waits: Samples) -> None:
    due = perf_counter() + random.random()  # noqa: S311
    while not done.is_set():
        await asyncio.sleep(max(0.0, due - perf_counter()))
        began = perf_counter()
        await through_api(client, lease, "true")
        waits.add((perf_counter() - began) * 1000)
        due = max(due + 1.0, perf_counter())


def _lock(path: Path, seconds: float) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        sleep(seconds)
        database.execute("ROLLBACK")


async def _typing(some: list[Terminal], seconds: float) -> Samples:
    """Echo times in ms when somebody types at each terminal."""
    found, until = Samples(), perf_counter() + seconds

    async def go_on(terminal: Terminal) -> None:
        due = perf_counter() + random.random() / _KEYS  # noqa: S311
        while due < until:
            await asyncio.sleep(max(0.0, due - perf_counter()))
            found.add(await terminal.echo() * 1000)
            due = max(due + 1 / _KEYS, perf_counter())

    await asyncio.gather(*(go_on(terminal) for terminal in some))
    return found


def _with_p95(sides: Sides, name: str, samples: Samples, most: float) -> list[Row]:
    """The samples, and their p95 as a number with a target."""
    p95 = Samples()
    p95.add(samples.p95)
    return [sides.row(name, samples), sides.row("  p95 of it", p95, most=most)]


@asynccontextmanager
async def _connection(sides: Sides) -> AsyncIterator[Client]:
    client = await sides.api.connect()
    try:
        yield client
    finally:
        client.close()


@asynccontextmanager
async def _open(sides: Sides, count: int) -> AsyncIterator[list[Terminal]]:
    """So many terminals, each with a program that echoes."""
    opened: list[Terminal] = []
    try:
        async with _connection(sides) as client:
            for _ in range(count):
                opened.append(await Terminal.open(client, sides.api.server.port, sides.lease))
                await opened[-1].become_echo()
        yield opened
    finally:
        for terminal in opened:
            terminal.close()
