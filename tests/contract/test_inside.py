"""What a sandbox finds inside: its rights, its world, and nothing of the server's."""

from __future__ import annotations

import os

import pytest

from sandboxes.engine.base import Engine
from sandboxes.guest import Command, Guest, Output

from .support import reached
from .target import Target


@pytest.fixture
async def guest(engine: Engine, make_spec, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVER_SECRET", "do-not-leak")
    spec = make_spec()
    await engine.start(spec)
    async with reached(engine, spec.name) as guest:
        yield guest


async def test_rights(guest: Guest, target: Target, sh):
    status = (await sh(guest, "cat /proc/self/status")).stdout.decode()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert fields["Uid"].split() == [str(target.tenant_uid)] * 4
    assert fields["Gid"].split() == [str(target.tenant_uid)] * 4
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(fields.get(kind, "0"), 16) == 0, kind
    assert (await sh(guest, "id -G")).stdout.split() == [str(target.tenant_uid).encode()]


async def test_root_is_read_only_and_the_workdir_is_not(guest: Guest, sh):
    for path in ("/file", "/usr/file", "/etc/file", "/.guest/file", "/proc/file", "/.guest/guest"):
        assert (await sh(guest, f": > {path}")).code != 0, path
    for path in ("file", "/tmp/file", "/run/file", "/dev/shm/file", "/var/tmp/file"):
        assert (await sh(guest, f"echo ok > {path} && cat {path}")).stdout == b"ok\n", path


REPLACE = b"""
import os
for turn in range(1 << 60):
    with open("new", "w") as file:
        file.write("short" if turn % 2 else "a longer text")
    os.rename("new", "file")
    if turn == 0:
        print("began", flush=True)
"""


async def test_a_file_that_is_replaced_again_and_again_is_read_whole(guest: Guest, target: Target):
    replacing = await guest.start(Command([b"python3", b"-c", REPLACE], target.workdir.encode(), {b"PATH": b"/usr/bin:/bin"}))
    assert await replacing.read() == Output(1, b"began\n")
    for _ in range(1000):
        reader = await guest.read(f"{target.workdir}/file".encode())
        content = b"".join([chunk async for chunk in reader])
        await reader.aclose()
        assert content in (b"short", b"a longer text")
        assert reader.stat.size == len(content)
    assert (await replacing.kill()).left == 0
    replacing.release()


async def test_only_loopback(guest: Guest, target: Target, sh):
    if target.engine == "kubernetes":
        pytest.skip("a pod has an address; a NetworkPolicy keeps it to itself")
    interfaces = (await sh(guest, "cat /proc/net/dev")).stdout.decode().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    connect = "import socket\ntry: socket.create_connection(('1.1.1.1', 53), 3)\nexcept OSError: print('refused')"
    assert (await sh(guest, f'python3 -c "{connect}"')).stdout == b"refused\n"


async def test_nothing_of_the_server(guest: Guest, sh):
    everything = await sh(guest, "env; cat /proc/*/environ 2>/dev/null")
    assert b"do-not-leak" not in everything.stdout
    assert (await sh(guest, "cat /etc/shadow /etc/ssh/* /etc/machine-id")).stdout == b""
    assert (await sh(guest, "cat /etc/hostname; uname -n")).stdout == b"sandbox\nsandbox\n"
    assert os.uname().nodename.encode() not in (await sh(guest, "cat /etc/hosts /etc/resolv.conf")).stdout


async def test_the_host_image_is_usable(guest: Guest, sh, target: Target):
    if target.image != "host":
        pytest.skip("another image")
    script = "import ssl, json, sqlite3; print(len(ssl.create_default_context().get_ca_certs()) > 10)"
    assert (await sh(guest, f'python3 -c "{script}"')).stdout == b"True\n"
    assert (await sh(guest, "id -un")).stdout == (b"sandbox\n" if target.tenant_uid else b"root\n")
    assert (await sh(guest, "test -r /etc/passwd && date && awk 'BEGIN { print 1 }'")).code == 0
    assert (await sh(guest, "printf '%s\n' '#!/usr/bin/env python3' 'print(2)' > s && chmod +x s && ./s")).stdout == b"2\n"


async def test_the_first_process_is_the_guest(guest: Guest, target: Target, sh):
    assert guest.hello.pid == 1
    assert guest.hello.uid == target.guest_uid
    assert b"/guest init" in (await sh(guest, "tr '\\0' ' ' < /proc/1/cmdline")).stdout
