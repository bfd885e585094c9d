"""Fixtures of the guest's tests. Every test fails that leaves a task behind, or an error that nobody looked at."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from harness.means import missing

from sandboxes.guest import Guest
from sandboxes.guest.transport import open_socket_stream

from .peer import Peer, connect

_SOURCE = Path(__file__).parents[2] / "guest"


@pytest_asyncio.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=5)
    assert not left
    gc.collect()
    await asyncio.sleep(0)
    assert not errors


@pytest_asyncio.fixture
async def scripted() -> AsyncIterator[tuple[Guest, Peer]]:
    guest, peer = await connect()
    yield guest, peer
    guest.close()
    peer.close()
    await peer.ended()


@pytest.fixture(scope="session")
def guest_binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The guest: the one that SANDBOXHUB_GUEST names, or built from ``guest/``."""
    given = os.environ.get("SANDBOXHUB_GUEST")
    if given:
        return given
    if shutil.which("go") is None:
        missing("there is neither SANDBOXHUB_GUEST nor Go")
    binary = tmp_path_factory.mktemp("guest") / "guest"
    subprocess.run(["go", "build", "-o", binary, "."], cwd=_SOURCE, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    return str(binary)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def guest_process(guest_binary: str, workdir: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The guest as the first process of namespaces of its own, and the host's end of its stdin and stdout."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        namespaces = ["--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        process = subprocess.Popen(
            ["unshare", *user, *namespaces, guest_binary, "init", "--stdio", "--workdir", str(workdir)],
            stdin=theirs,
            stdout=theirs,
        )
    yield process, ours
    process.kill()
    process.wait()


@pytest_asyncio.fixture
async def guest(guest_process: tuple[subprocess.Popen[bytes], socket.socket]) -> AsyncIterator[Guest]:
    guest = await Guest.open(await open_socket_stream(guest_process[1]), timeout=30)
    yield guest
    guest.close()
