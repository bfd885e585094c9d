"""oci as root: what a killed control plane leaves of its disks."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from harness.waiting import PATIENCE

from sandboxes.engine.oci.config import Paths
from sandboxes.engine.oci.locks import Locks

from .oci import OciTarget
from .target import Target

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user never has disks")


def tool(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


async def test_a_mount_that_is_made_late(target: Target):
    """The tool that a killed control plane had started goes on, while the next one clears up."""
    if not isinstance(target, OciTarget):
        pytest.skip("of the oci engine")
    paths = Paths(target.config(target.environment["TARGET_INSTANCE"]))
    paths.make()
    image = paths.templates / f"{32 << 20}.new"
    with image.open("xb") as file:
        file.truncate(32 << 20)
    tool("mkfs.ext4", "-q", image)
    at = image.with_suffix(".mnt")
    at.mkdir()
    device = tool("losetup", "--find", "--show", image)
    engine = target.make()
    opening = asyncio.create_task(engine.open())
    async with asyncio.timeout(PATIENCE):
        while not Locks(paths.locks).held(f"template-{32 << 20}"):
            await asyncio.sleep(0)
    await asyncio.to_thread(tool, "mount", device, at)
    await opening
    await engine.close()
    assert not image.exists() and not at.exists()
