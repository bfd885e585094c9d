"""A volume is a workdir that outlives its sandboxes."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.engine.base import Engine
from sandboxes.errors import EngineError, StartFailed

from .support import reached
from .target import Target

_SIZE = 48 << 20


@pytest.fixture(autouse=True)
def needs_volumes(target: Target) -> None:
    if not target.volumes:
        pytest.skip("no volumes here")


async def test_outlives_its_sandboxes(engine: Engine, make_spec, sh):
    await engine.ensure_volume("vol-1", _SIZE)
    first, second = make_spec(volume="vol-1"), make_spec(volume="vol-1")
    await engine.start(first)
    async with reached(engine, first.name) as guest:
        assert (await sh(guest, "ls -A")).stdout == b""
        await sh(guest, "echo kept > file")
    await engine.end(first.name)
    await engine.start(second)
    async with reached(engine, second.name) as guest:
        assert (await sh(guest, "cat file && echo more >> file")).stdout == b"kept\n"
    await engine.end(second.name)
    assert await engine.list_volumes() == {"vol-1": _SIZE}


async def test_ensure_keeps_what_is_there(engine: Engine, make_spec, sh):
    await asyncio.gather(*(engine.ensure_volume("vol-1", _SIZE) for _ in range(3)))
    await engine.ensure_volume("vol-1", 2 * _SIZE)
    assert await engine.list_volumes() == {"vol-1": _SIZE}


async def test_delete(engine: Engine, make_spec):
    await engine.ensure_volume("vol-1", _SIZE)
    spec = make_spec(volume="vol-1")
    await engine.start(spec)
    with pytest.raises(EngineError, match="holds"):
        await engine.delete_volume("vol-1")
    await engine.end(spec.name)
    await engine.delete_volume("vol-1")
    await engine.delete_volume("vol-1")
    assert await engine.list_volumes() == {}
    with pytest.raises(StartFailed, match="does not exist"):
        await engine.start(make_spec(volume="vol-1"))


async def test_one_holder(engine: Engine, make_spec, sh):
    await engine.ensure_volume("vol-1", _SIZE)
    holder = make_spec(volume="vol-1")
    await engine.start(holder)
    with pytest.raises(StartFailed, match="another sandbox holds"):
        await engine.start(make_spec(volume="vol-1"))
    async with reached(engine, holder.name) as guest:
        assert (await sh(guest, "echo still > mine && cat mine")).stdout == b"still\n"


async def test_names_are_checked(engine: Engine):
    for name in ("", "../x", "a/b", ".hidden", "x" * 200):
        with pytest.raises(EngineError):
            await engine.ensure_volume(name, _SIZE)
        with pytest.raises(EngineError):
            await engine.delete_volume(name)
