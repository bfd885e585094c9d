"""kubernetes: the engine while parts of the cluster are broken. Nothing else may run on that cluster at the same time."""

from __future__ import annotations

import asyncio

import pytest
from harness.waiting import PATIENCE

from sandboxes.engine.base import Engine, Health
from sandboxes.engine.kubernetes import engine as engine_module
from sandboxes.errors import EngineError, EngineUnavailable, GuestLost, SandboxGone, StartFailed
from sandboxes.guest import Guest

from .kube import KubernetesTarget
from .support import reached
from .test_death import listen


async def eventually_reached(engine: Engine, name: str) -> Guest:
    """As the lifecycle does it after a loss."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await Guest.open(await engine.connect(name), timeout=PATIENCE)
            except (GuestLost, EngineError) as error:
                assert not isinstance(error, SandboxGone)
                await asyncio.sleep(0.2)


async def test_a_kubelet_that_hangs(kube: KubernetesTarget, engine: Engine, make_spec, sh, monkeypatch: pytest.MonkeyPatch):
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        with kube.traces.node.frozen("kubelet"):
            with pytest.raises(EngineUnavailable, match="node of the sandbox does not answer"):
                await engine.connect(spec.name)
            assert await engine.observe() == {spec.name: Health.RUNNING}
            with monkeypatch.context() as patch:
                patch.setattr(engine_module, "_END_TIMEOUT", 2.0)
                with pytest.raises(EngineError, match="has not confirmed that it ended"):
                    await engine.end(spec.name)
        assert guest is not None
    await engine.end(spec.name)
    assert await engine.observe() == {}


async def test_the_api_server_is_restarted(kube: KubernetesTarget, engine: Engine, make_spec, sh):
    """What runs goes on; a command on a connection that was cut is of unknown outcome; the watch works again."""
    told = listen(engine)
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        await sh(guest, "echo kept > file")
        command = asyncio.create_task(sh(guest, "sleep 1000"))
        await sh(guest, "true")
        boot_id = guest.hello.boot_id
        with kube.traces.node.stopped("kube-apiserver"):
            with pytest.raises(GuestLost):
                await asyncio.wait_for(command, PATIENCE)
            with pytest.raises(EngineUnavailable):
                await engine.connect(spec.name)
    guest = await eventually_reached(engine, spec.name)
    assert guest.hello.boot_id == boot_id
    assert (await sh(guest, "cat file")).stdout == b"kept\n"
    async with asyncio.timeout(PATIENCE):  # the guest ends what the cut connection ran
        while (await sh(guest, "pidof sleep")).code == 0:
            await asyncio.sleep(0.1)
    guest.close()
    assert await engine.observe() == {spec.name: Health.RUNNING}
    assert told.empty()
    await kube.kill(spec.name)
    assert (await asyncio.wait_for(told.get(), PATIENCE))[0] == spec.name


async def test_the_api_server_is_restarted_under_a_start(kube: KubernetesTarget, engine: Engine, make_spec, sh):
    spec = make_spec()
    start = asyncio.create_task(engine.start(spec))
    await asyncio.wait([start], timeout=0.2)
    await asyncio.to_thread(kube.traces.node.kill, "kube-apiserver")
    try:
        await start
    except StartFailed:
        async with asyncio.timeout(180):
            while not await is_ended(engine, spec.name):  # what could not be removed then is found
                await asyncio.sleep(0.2)
    else:
        guest = await eventually_reached(engine, spec.name)
        assert (await sh(guest, "echo up")).stdout == b"up\n"
        guest.close()


async def is_ended(engine: Engine, name: str) -> bool:
    """Now; not when an API server that has just started cannot be asked, or knows no roles yet."""
    try:
        await engine.end(name)
        return await engine.observe() == {}
    except EngineError:
        return False
