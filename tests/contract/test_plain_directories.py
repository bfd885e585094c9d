"""oci as root on a system without mkfs.ext4: workdirs and volumes are directories, which is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .support import opened, reached
from .target import Target

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user never has disks: the whole suite covers it")


async def test_a_host_without_mkfs(target: Target, make_spec, sh, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    if target.engine != "oci":
        pytest.skip("of the oci engine")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("umount", "mount", "rm", "chmod"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    async with opened(target.make()) as engine:
        assert [runtime.unenforced for runtime in engine.runtimes.values()] == [("disk",)]
        own, kept = make_spec(), make_spec(volume="m-acme-kept-0123456789")
        await engine.ensure_volume("m-acme-kept-0123456789", 16 << 20)
        for spec in (own, kept):
            await engine.start(spec)
            async with reached(engine, spec.name) as guest:
                assert (await sh(guest, "echo mine > file && stat -c %u:%g file . && cat file")).stdout == b"1000:1000\n1000:1000\nmine\n"
                assert (await sh(guest, "head -c 40000000 /dev/zero > big")).code != 0  # one file is bounded
            await engine.end(spec.name)
        again = make_spec(volume="m-acme-kept-0123456789")
        await engine.start(again)
        async with reached(engine, again.name) as guest:
            assert (await sh(guest, "cat file")).stdout == b"mine\n"
        await engine.end(again.name)
        await engine.delete_volume("m-acme-kept-0123456789")
