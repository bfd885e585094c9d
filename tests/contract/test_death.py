"""A sandbox that dies, freezes or loses its control plane in the middle."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from harness.waiting import PATIENCE

from sandboxes.engine.base import Engine, Health
from sandboxes.errors import SandboxGone

from .support import new_name, opened, reached
from .target import Target


def listen(engine: Engine) -> asyncio.Queue[tuple[str, str]]:
    told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    engine.watch(lambda *news: told.put_nowait(news))
    return told


async def test_a_death_is_told_once_with_a_reason(engine: Engine, target: Target, make_spec):
    told = listen(engine)
    spec, other = make_spec(), make_spec()
    await engine.start(spec)
    await engine.start(other)
    async with reached(engine, spec.name) as guest:
        await target.kill(spec.name)
        name, reason = await asyncio.wait_for(told.get(), PATIENCE)
        assert name == spec.name
        assert "killed" in reason
        await asyncio.wait_for(asyncio.shield(guest.lost), PATIENCE)
    assert await engine.observe() == {spec.name: Health.DEAD, other.name: Health.RUNNING}
    with pytest.raises(SandboxGone, match="killed"):
        await engine.connect(spec.name)
    await engine.end(spec.name)
    assert await engine.observe() == {other.name: Health.RUNNING}
    await engine.end(other.name)  # its end is no death
    assert told.empty()


async def test_a_dead_one_can_be_started_again(engine: Engine, target: Target, make_spec, sh):
    told = listen(engine)
    spec = make_spec()
    await engine.start(spec)
    await target.kill(spec.name)
    await asyncio.wait_for(told.get(), PATIENCE)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        assert (await sh(guest, "echo again")).stdout == b"again\n"


async def test_a_frozen_one_ends(engine: Engine, target: Target, make_spec):
    spec = make_spec()
    await engine.start(spec)
    await target.freeze(spec.name)
    assert await engine.observe() == {spec.name: Health.RUNNING}
    await engine.end(spec.name)
    assert await engine.observe() == {}


async def test_the_reason_of_running_out_of_memory(engine: Engine, target: Target, make_spec, sh):
    if "memory" in engine.runtimes[target.runtime].unenforced:
        pytest.skip("nothing bounds memory in this mode")
    told = listen(engine)
    spec = make_spec(memory=128 << 20)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        hog = asyncio.create_task(sh(guest, "exec python3 -c 'x = bytearray(b\"x\") * (1 << 30)'"))
        news = asyncio.create_task(told.get())
        await asyncio.wait([hog, news], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        if target.runtime == "runc":  # the kernel takes the command, which is bigger than the guest
            assert (await hog).code == 137
            assert (await sh(guest, "echo healthy")).stdout == b"healthy\n"
            news.cancel()
        else:
            name, reason = await asyncio.wait_for(news, PATIENCE)
            assert name == spec.name
            assert "memory" in reason
            assert "128 MiB" in reason
            await asyncio.wait([hog])
            hog.exception()


CRASH = """
import asyncio, signal, sys
from sandboxes.engine.base import Limits, Spec
async def main(name, runtime, workdir):
    engine = make()
    await engine.open()
    spec = Spec(name, runtime, engine.images()[0], workdir, None, Limits(memory=128 << 20, disk=32 << 20))
    action = engine.start(spec)
    if sys.argv[4] == "end":
        await action
        action = engine.end(name)
    task = asyncio.create_task(action)
    await asyncio.wait([task], timeout=float(sys.argv[5]))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main(*sys.argv[1:4]))
"""


@pytest.mark.parametrize("moment", [0, 0.01, 0.02, 0.04, 0.08, 0.12, 0.5])
@pytest.mark.parametrize("action", ["start", "end"])
async def test_what_a_crash_leaves_is_ended(engine: Engine, target: Target, action: str, moment: float):
    """The control plane is killed in the middle of a start or an end; the next one finds what there is and ends it."""
    name = new_name()
    command = [sys.executable, "-c", target.engine_program + CRASH, name, target.runtime, target.workdir, action, str(moment)]
    await asyncio.to_thread(subprocess.run, command, env={**os.environ, **target.environment}, check=False)
    async with opened(target.make()) as after:
        assert set(await after.observe()) <= {name}
        await after.end(name)
        assert await after.observe() == {}
        assert await target.leaks() == []
