"""Start, connect, end: what the lifecycle builds on."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace

import pytest
from harness.waiting import PATIENCE

from sandboxes.engine.base import Engine, Health, Running
from sandboxes.errors import EngineError, SandboxGone, StartFailed
from sandboxes.guest import Command, Outcome, run

from .support import new_name, opened, reached
from .target import Target


async def test_runs_commands_and_keeps_files(engine: Engine, make_spec, sh, target: Target):
    spec = make_spec()
    assert await engine.start(spec) == Running(target.runtime, target.image)
    async with reached(engine, spec.name) as guest:
        assert (await sh(guest, "exit 7")).code == 7
        result = await sh(guest, "echo out; echo err >&2; pwd")
        assert result.stdout == f"out\n{target.workdir}\n".encode()
        assert result.stderr == b"err\n"

        async def chunks():
            yield b"a\0b"
            yield b"c\n"

        assert (await guest.write(b"dir/file", chunks())).size == 5
        assert (await sh(guest, "wc -c < dir/file")).stdout.strip() == b"5"
        await sh(guest, "printf fromcommand > made")
        reader = await guest.read(b"made")
        assert b"".join([chunk async for chunk in reader]) == b"fromcommand"
        assert {entry.name for entry in await guest.list(b".")} == {b"dir", b"made"}
    assert await engine.observe() == {spec.name: Health.RUNNING}


async def test_the_runtime_is_proven(engine: Engine, target: Target):
    assert list(engine.runtimes) == [target.runtime]
    assert engine.runtimes[target.runtime].version
    assert engine.images()[0] == target.image


async def test_start_leaves_one_that_runs_as_it_is(engine: Engine, make_spec):
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as first:
        await engine.start(spec)
        async with reached(engine, spec.name) as second:
            assert second.hello.boot_id == first.hello.boot_id


async def test_same_start_many_times_at_once(engine: Engine, make_spec):
    spec = make_spec()
    await asyncio.gather(*(engine.start(spec) for _ in range(4)))
    async with reached(engine, spec.name):
        assert await engine.observe() == {spec.name: Health.RUNNING}


async def test_many_at_once_are_apart(engine: Engine, make_spec, sh):
    specs = [make_spec() for _ in range(6)]

    async def one(spec):
        await engine.start(spec)
        async with reached(engine, spec.name) as guest:
            await sh(guest, f"echo {spec.name} > mine")
            return (await sh(guest, "cat *")).stdout.decode().strip()

    assert await asyncio.gather(*map(one, specs)) == [spec.name for spec in specs]
    await asyncio.gather(*(engine.end(spec.name) for spec in specs))
    assert await engine.observe() == {}


async def test_several_connections(engine: Engine, make_spec, sh):
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as first, reached(engine, spec.name) as second:
        assert first.hello.boot_id == second.hello.boot_id
        results = await asyncio.gather(sh(first, "echo 1"), sh(second, "echo 2"))
        assert [result.stdout for result in results] == [b"1\n", b"2\n"]
    async with reached(engine, spec.name) as third:
        assert (await sh(third, "echo 3")).stdout == b"3\n"


async def test_a_kill_spares_the_connections(engine: Engine, make_spec, sh):
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as first, reached(engine, spec.name) as second:
        for guest in (first, second, first):
            shell = Command([b"/bin/sh", b"-c", b"sleep 1000 & sleep 1000"], b"/", {b"PATH": b"/usr/bin:/bin"})
            result = await run(guest, shell, timeout=0.2)
            assert (result.outcome, result.left) == (Outcome.TIMED_OUT, 0)
        await second.stop_all()
        assert (await sh(first, "echo 1")).stdout == b"1\n"
        assert (await sh(second, "echo 2")).stdout == b"2\n"


async def test_end_twice_and_unknown(engine: Engine, make_spec):
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        await engine.end(spec.name)
        await asyncio.wait_for(asyncio.shield(guest.lost), PATIENCE)
    assert await engine.observe() == {}
    await engine.end(spec.name)
    await engine.end(new_name())
    with pytest.raises(SandboxGone):
        await engine.connect(spec.name)
    with pytest.raises(SandboxGone):
        await engine.connect(new_name())


async def test_started_again_after_its_end(engine: Engine, make_spec, sh):
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        await sh(guest, "touch old")
    await engine.end(spec.name)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        assert (await sh(guest, "ls -A")).stdout == b""


async def test_end_from_many_sides_at_once(engine: Engine, target: Target, make_spec):
    spec = make_spec()
    await engine.start(spec)
    async with opened(target.make()) as other:
        await asyncio.gather(*(side.end(spec.name) for side in (engine, other, engine, other)))
        assert await engine.observe() == await other.observe() == {}


@pytest.mark.parametrize("head_start", [0, 0.02, 0.06, 0.12, 0.5])
async def test_end_while_it_starts(engine: Engine, make_spec, head_start: float):
    spec = make_spec()
    start = asyncio.create_task(engine.start(spec))
    await asyncio.wait([start], timeout=head_start)
    await engine.end(spec.name)
    try:
        await start
    except StartFailed as error:
        assert "ended while it started" in error.detail  # noqa: PT017
    assert await engine.observe() == {}


@pytest.mark.parametrize("head_start", [0, 0.02, 0.06, 0.12, 0.5])
async def test_a_cancelled_start_leaves_nothing(engine: Engine, target: Target, make_spec, head_start: float):
    spec = make_spec()
    start = asyncio.create_task(engine.start(spec))
    await asyncio.wait([start], timeout=head_start)
    start.cancel()
    await asyncio.wait([start])
    if start.cancelled():
        assert await engine.observe() == {}
        assert await target.leaks() == []


async def test_a_refused_start_leaves_nothing(engine: Engine, target: Target, make_spec):
    for spec in (
        make_spec(image=target.missing_image),
        make_spec(image="../host"),
        make_spec(volume=f"v-{secrets.token_hex(4)}"),
        replace(make_spec(), runtime="no-such-runtime"),
        replace(make_spec(), name="m-1"),
        replace(make_spec(), name="--help"),
    ):
        with pytest.raises(StartFailed):
            await engine.start(spec)
    assert await target.leaks() == []
    with pytest.raises(EngineError):
        await engine.end("m-1")


async def test_sandboxes_outlive_the_engine_and_are_found_again(target: Target, make_spec, sh):
    spec = make_spec()
    async with opened(target.make()) as after:
        before = target.make()
        await before.open()
        await before.start(spec)
        async with reached(before, spec.name) as guest:
            await sh(guest, "echo kept > file")
            boot_id = guest.hello.boot_id
        await before.close()
        assert await after.observe() == {spec.name: Health.RUNNING}
        async with reached(after, spec.name) as guest:
            assert guest.hello.boot_id == boot_id
            assert (await sh(guest, "cat file")).stdout == b"kept\n"
        told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        after.watch(lambda *news: told.put_nowait(news))
        await target.kill(spec.name)
        assert (await asyncio.wait_for(told.get(), PATIENCE))[0] == spec.name
        await after.end(spec.name)


async def test_nothing_of_another_deployment_is_touched(engine: Engine, target: Target, make_spec, sh):
    spec = make_spec()
    await engine.start(spec)
    async with opened(target.make_foreign()) as foreign:
        assert await foreign.observe() == {}
        await foreign.end(spec.name)
        with pytest.raises(SandboxGone):
            await foreign.connect(spec.name)
        async with reached(engine, spec.name) as guest:
            assert (await sh(guest, "echo alive")).stdout == b"alive\n"
    assert await engine.observe() == {spec.name: Health.RUNNING}
