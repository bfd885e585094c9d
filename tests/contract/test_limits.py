"""Each bound is met by what runs inside, which stays healthy."""

from __future__ import annotations

import pytest

from sandboxes.engine.base import Engine

from .support import reached
from .target import Target

_MIB = 1 << 20


def enforced(engine: Engine, target: Target, limit: str) -> None:
    if limit in engine.runtimes[target.runtime].unenforced:
        pytest.skip(f"nothing bounds {limit} in this mode")


async def test_disk(engine: Engine, target: Target, make_spec, sh):
    enforced(engine, target, "disk")
    if target.engine == "kubernetes":
        pytest.skip("a node evicts what exceeds its disk: test_kubernetes.py")
    spec = make_spec(disk=16 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        result = await sh(guest, "head -c 64M /dev/zero > big")
        assert b"No space left" in result.stderr
        assert (await guest.stat(b"big")).size < 16 * _MIB
        assert (await sh(guest, "rm big && echo ok > small && cat small")).stdout == b"ok\n"


async def test_one_file_where_the_disk_is_not_bounded(engine: Engine, target: Target, make_spec, sh):
    if "disk" not in engine.runtimes[target.runtime].unenforced:
        pytest.skip("the disk itself is bounded")
    spec = make_spec(disk=16 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        assert (await sh(guest, "head -c 64M /dev/zero > big")).code != 0
        assert (await guest.stat(b"big")).size <= 16 * _MIB


@pytest.mark.parametrize("place", ["/tmp", "/run", "/dev/shm"])
async def test_memory_file_systems(engine: Engine, target: Target, make_spec, sh, place: str):
    if place not in target.bounded:
        pytest.skip(f"nothing but the memory bounds {place}")
    spec = make_spec(memory=128 * _MIB, disk=512 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        assert b"No space left" in (await sh(guest, f"head -c 256M /dev/zero > {place}/big")).stderr
        assert (await sh(guest, "echo healthy")).stdout == b"healthy\n"


async def test_all_memory_file_systems_full(engine: Engine, target: Target, make_spec, sh):
    spec = make_spec(memory=128 * _MIB, disk=512 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        await sh(guest, f"for d in {' '.join(target.bounded)}; do head -c 256M /dev/zero > $d/big; done")
        assert (await sh(guest, "python3 -c 'print(1)'")).stdout == b"1\n"


async def test_processes(engine: Engine, target: Target, make_spec, sh):
    enforced(engine, target, "pids")
    spec = make_spec(pids=64, memory=1024 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        many = (
            "import os, time\nn = 0\ntry:\n while n < 1000:\n  if os.fork() == 0: time.sleep(600)\n  n += 1\nexcept OSError: pass\nprint(n)"
        )
        forked = int((await sh(guest, f'python3 -c "{many}"')).stdout)
        assert 16 < forked <= 64 + 32
        await guest.stop_all()
        assert (await sh(guest, "echo healthy")).stdout == b"healthy\n"


async def test_a_fork_bomb(engine: Engine, target: Target, make_spec, sh):
    enforced(engine, target, "pids")
    spec = make_spec(pids=64, memory=1024 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        await sh(guest, "bomb() { bomb | bomb & }; bomb; i=0; while [ $i -lt 10000 ]; do i=$((i + 1)); done")
        for _ in range(6):  # the guest gives up after 10 s each time, on a busy machine too early
            await guest.stop_all()
            if (await sh(guest, "echo healthy")).stdout == b"healthy\n":
                break
        else:
            pytest.fail("the sandbox did not recover")


async def test_memory_is_seen_inside(engine: Engine, target: Target, make_spec, sh):
    if target.runtime != "gvisor":
        pytest.skip("a shared kernel shows the host's")
    enforced(engine, target, "memory")
    spec = make_spec(memory=192 * _MIB)
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        assert (await sh(guest, "grep MemTotal /proc/meminfo")).stdout.split()[1] == str(192 << 10).encode()
