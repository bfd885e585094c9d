"""oci: what ``open`` says when a host cannot run sandboxes. Its parts are broken one by one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.engine.oci import OciEngine
from sandboxes.errors import EngineError

from .oci import OciTarget
from .target import Target


@pytest.fixture
def config(target: Target):
    if not isinstance(target, OciTarget):
        pytest.skip("of the oci engine")
    return target.config("0123456789ab")


async def says(config) -> str:
    engine = OciEngine(config)
    with pytest.raises(EngineError) as failure:
        await engine.open()
    assert dict(engine.runtimes) == {}
    await engine.close()
    assert OciTarget.leaks_of(config) == []
    OciTarget.clean_up(config)
    return failure.value.detail


async def test_no_such_runtime(config, target: Target):
    said = await says(replace(config, runtimes={target.runtime: Path("/no/such/program")}))
    assert f"The runtime {target.runtime} (/no/such/program) failed its self-test at finding it" in said
    assert "Set the path" in said


async def test_a_runtime_that_does_nothing(config, target: Target):
    assert "failed its self-test" in await says(replace(config, runtimes={target.runtime: Path("/bin/false")}))
    assert "failed its self-test" in await says(replace(config, runtimes={target.runtime: Path("/bin/true")}))


async def test_no_guest(config):
    assert "guest program /no/such/guest cannot be read" in await says(replace(config, guest=Path("/no/such/guest")))


async def test_a_guest_that_is_not_one(config, tmp_path: Path):
    for content in (b"#!/bin/sh\nexec sleep 1\n", b"not a program", b"#!/bin/sh\nprintf 'HTTP/1.1 200 OK\\r\\n\\r\\n'; cat\n"):
        (tmp_path / "guest").write_bytes(content)
        said = await says(replace(config, guest=tmp_path / "guest"))
        assert "failed its self-test at starting a sandbox" in said or "at reaching its guest" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's own engine is proven by the rest of the suite")
async def test_what_a_crash_left_of_a_self_test_is_removed(config, target: Target):
    left = config.home / "oci" / config.instance / "bundles" / f"t-{'0' * 24}-0000"
    left.mkdir(parents=True)
    engine = OciEngine(config)
    await engine.open()
    assert not left.exists()
    await engine.close()
    assert OciTarget.leaks_of(config) == []
    OciTarget.clean_up(config)
