"""kubernetes: what can go wrong in a cluster, done to a real one. Each ends in the right error, with nothing left behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from harness.pods import IMAGE_WITH_GUEST
from harness.waiting import PATIENCE

from sandboxes.engine.base import Engine
from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine, reasons
from sandboxes.engine.kubernetes.selftest import NEEDED
from sandboxes.errors import EngineError, GuestLost, SandboxGone, StartFailed
from sandboxes.guest import Outcome

from .kube import KubernetesTarget
from .support import opened, reached
from .test_death import listen

_MIB = 1 << 20


async def says_at_open(config: KubernetesConfig) -> str:
    engine = KubernetesEngine(config)
    with pytest.raises(EngineError) as failure:
        await engine.open()
    await engine.close()
    return failure.value.detail


# What a pod is


async def test_an_image_that_brings_the_guest(kube: KubernetesTarget, engine: Engine, make_spec, sh):
    spec = make_spec(image=IMAGE_WITH_GUEST)
    assert (await engine.start(spec)).image == IMAGE_WITH_GUEST
    async with reached(engine, spec.name) as guest:
        assert guest.hello.pid == 1
        assert (await sh(guest, "ls -A /.sandboxhub; tr '\\0' ' ' < /proc/1/cmdline")).stdout.startswith(b"/.guest/guest init")


async def test_a_stranger_finds_the_lease(kube: KubernetesTarget, engine: Engine, make_spec):
    spec = make_spec()
    await engine.start(spec)
    pod = await asyncio.to_thread(kube.space.pod, spec.name)
    assert pod["metadata"]["labels"]["sandboxhub/lease"] == pod["metadata"]["annotations"]["sandboxhub/lease"] == "test"
    assert pod["spec"]["runtimeClassName"] == kube.runtime


async def test_a_hundred_at_once(kube: KubernetesTarget, engine: Engine, make_spec, sh):
    """Bare execs in such a number wedge a gVisor pod for good."""
    spec = make_spec(memory=512 * _MIB, pids=512)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        results = await asyncio.gather(*(sh(guest, f"echo {number}; sleep 1") for number in range(100)))
        assert [result.stdout for result in results] == [b"%d\n" % number for number in range(100)]
        async with reached(engine, spec.name) as second:
            assert (await sh(second, "echo well")).stdout == b"well\n"


# Starts that cannot succeed


async def test_no_room(kube: KubernetesTarget, make_spec):
    async with opened(KubernetesEngine(replace(kube.config(), schedule_wait=1))) as engine:
        with pytest.raises(StartFailed, match="no node has room for it: .*Insufficient cpu"):
            await engine.start(make_spec(cpus=1000))


async def test_a_volume_that_never_gets_a_disk(kube: KubernetesTarget, make_spec, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reasons, "_VOLUME_GRACE", 2.0)
    async with opened(KubernetesEngine(replace(kube.config(), storage_class="no-such-class"))) as engine:
        await engine.ensure_volume("never", 16 * _MIB)
        with pytest.raises(StartFailed, match="its volume has no disk yet"):
            await engine.start(make_spec(volume="never"))


async def test_a_full_quota(kube: KubernetesTarget, engine: Engine, make_spec):
    quotas = f"{kube.space.path}/resourcequotas"
    api = kube.space.api
    await asyncio.to_thread(api.create, quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    try:
        async with asyncio.timeout(PATIENCE):  # until the quota is in force
            while "used" not in (await asyncio.to_thread(api.get, f"{quotas}/none"))["status"]:
                await asyncio.sleep(0.1)
        with pytest.raises(StartFailed, match="quota for sandboxes is used up"):
            await engine.start(make_spec())
        async with opened(kube.make()) as another:  # a full cluster is not a broken one
            assert list(another.runtimes) == [kube.runtime]
    finally:
        await asyncio.to_thread(api.delete, f"{quotas}/none")


async def test_a_runtime_that_the_cluster_lacks(kube: KubernetesTarget, make_spec):
    runtimes = {"kata-clh": "no-such-class", kube.runtime: kube.runtime}
    async with opened(KubernetesEngine(replace(kube.config(), runtimes=runtimes))) as engine:
        assert list(engine.runtimes) == [kube.runtime]
        with pytest.raises(StartFailed, match="no runtime kata-clh"):
            await engine.start(replace(make_spec(), runtime="kata-clh"))
    assert "no RuntimeClass no-such-class" in await says_at_open(replace(kube.config(), runtimes={"kata-clh": "no-such-class"}))


async def test_an_account_that_may_not_exec(kube: KubernetesTarget, tmp_path: Path):
    needed = {resource: verbs for resource, verbs in NEEDED.items() if resource != "pods/exec"}
    account = await asyncio.to_thread(kube.space.allow, needed, f"no-exec-{kube.runtime}", tmp_path)
    said = await says_at_open(replace(kube.config(), kubeconfig=account))
    assert "may not create pods/exec, get pods/exec in namespace" in said


async def test_no_such_namespace(kube: KubernetesTarget):
    said = await says_at_open(replace(kube.config(), namespace="elsewhere"))
    assert "in namespace elsewhere" in said


async def test_no_kubeconfig(kube: KubernetesTarget, tmp_path: Path):
    assert "no way into the cluster" in await says_at_open(replace(kube.config(), kubeconfig=tmp_path / "none"))


# Deaths


async def test_a_pod_that_somebody_deletes(kube: KubernetesTarget, engine: Engine, make_spec, sh):
    told = listen(engine)
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        command = asyncio.create_task(sh(guest, "echo begun; sleep 1000"))
        await sh(guest, "true")
        await asyncio.to_thread(kube.space.api.delete, f"{kube.space.path}/pods/{spec.name}")
        assert await asyncio.wait_for(told.get(), PATIENCE) == (spec.name, "somebody deleted its pod")
        try:  # the guest may have had the time to tell
            assert (await asyncio.wait_for(command, PATIENCE)).outcome is Outcome.STOPPED
        except GuestLost:
            assert guest.lost.done()
    with pytest.raises(SandboxGone):
        await engine.connect(spec.name)
    await engine.end(spec.name)
    assert told.empty()


async def test_a_full_disk(kube: KubernetesTarget, engine: Engine, make_spec, sh):
    told = listen(engine)
    spec = make_spec(disk=16 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        await sh(guest, "head -c 128M /dev/zero > big")
        name, reason = await asyncio.wait_for(told.get(), 150)
    assert name == spec.name
    assert "evicted" in reason
