"""The sides that are compared on one runtime: the bare command line, a guest's client on an engine, and the API."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bare import WORKDIR, Bare
from bench.client import Client
from bench.server import Server
from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.oci.cgroups import Cgroups, hierarchies
from sandboxes.engine.oci.config import OciConfig, Paths
from sandboxes.engine.oci.engine import OciEngine
from sandboxes.errors import SandboxError
from sandboxes.guest import Command, Guest, run

_CHUNK = 64 << 10
_ENVIRONMENT = {b"PATH": b"/usr/bin:/bin"}


def new_name() -> str:
    return f"m-{secrets.token_hex(12)}-0001"


class Direct:
    """The product without its API: an engine and a guest's client in this process."""

    def __init__(self, config: OciConfig, limits: Limits) -> None:
        self.config = config
        self._limits = limits
        self._engine = OciEngine(config)
        self._names: list[str] = []

    async def open(self) -> None:
        await self._engine.open()

    async def start(self, runtime: str) -> tuple[str, Guest]:
        name = new_name()
        self._names.append(name)
        await self._engine.start(Spec(name, runtime, "host", WORKDIR, limits=self._limits))
        return name, await Guest.open(await self._engine.connect(name))

    def bare(self, runtime: str, name: str, home: Path) -> Bare:
        """The baseline of a runtime, made from the bundle of the sandbox ``name``."""
        paths = Paths(self.config)
        bundle: dict[str, Any] = json.loads((paths.bundle(name) / "config.json").read_text())
        template = None if self.config.rootless else paths.templates / f"{self._limits.disk}.img"
        cgroups = Cgroups(self.config.instance, [] if self.config.rootless else hierarchies())
        return Bare(runtime, self.config.runtimes[runtime], bundle, template, home, cgroups)

    async def close(self) -> None:
        for name in self._names:
            try:
                await self._engine.end(name)
            except SandboxError as error:
                print(f"bench: {name} is left: {error.detail}", file=sys.stderr)
        await self._engine.close()


async def through_guest(guest: Guest, *argv: str) -> None:
    """Run a command that succeeds."""
    result = await run(guest, _command(argv), timeout=60)
    assert result.code == 0, result


async def take_through_guest(guest: Guest, size: int, *argv: str) -> None:
    """Run a command that writes ``size`` bytes, and take them."""
    process = await guest.start(_command(argv))
    try:
        count = 0
        while (piece := await process.read(until_exit=True)) is not None:
            count += len(piece.data)
        assert count == size, count
    finally:
        process.release()


async def give_through_guest(guest: Guest, size: int, *argv: str) -> None:
    """Run a command with ``size`` bytes of input, to its end."""
    process = await guest.start(_command(argv, stdin=True))
    try:
        for chunk in zeros(size):
            await process.write(chunk)
        process.close_stdin()
        exit = await process.wait()
        assert exit.value == 0, exit
    finally:
        process.release()


def zeros(size: int) -> Iterator[bytes]:
    chunk = bytes(_CHUNK)
    while size:
        yield chunk[:size]
        size -= len(chunk[:size])


def _command(argv: tuple[str, ...], *, stdin: bool = False) -> Command:
    return Command([part.encode() for part in argv], WORKDIR.encode(), _ENVIRONMENT, stdin=stdin)


@dataclass
class Api:
    """The product as it is used: a server in a process of its own, and a connection to it."""

    server: Server
    key: str
    client: Client

    async def connect(self) -> Client:
        return await Client(self.server.port, self.key).open()

    async def lease(self, runtime: str) -> str:
        leased = await self.client.call("POST", "/v1/sandboxes", {"runtime": runtime})
        assert (leased["status"], leased["runtime"]) == ("running", runtime), leased
        return str(leased["id"])

    async def end(self, lease: str) -> None:
        await self.client.call("DELETE", f"/v1/sandboxes/{lease}")

    async def close(self) -> None:
        """End what is still leased. On a connection of its own: the other may have been cut in the middle of a request."""
        self.client.close()
        self.client = await self.connect()
        for sandbox in (await self.client.call("GET", "/v1/sandboxes"))["sandboxes"]:
            await self.end(sandbox["id"])
        self.client.close()


async def through_api(client: Client, lease: str, *argv: str) -> None:
    """Run a command that succeeds."""
    result = await client.call("POST", f"/v1/sandboxes/{lease}/exec", {"argv": list(argv)})
    assert result["exitCode"] == 0, result
