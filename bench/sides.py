"""The sides that are compared on one runtime: the bare command line, a guest's client on an engine, and the API."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from bench.bare import WORKDIR
from bench.client import Client
from bench.server import Server
from sandboxes.engine.base import Engine, Limits, Spec
from sandboxes.errors import SandboxError
from sandboxes.guest import Command, Guest, run

_CHUNK = 64 << 10
_ENVIRONMENT = {b"PATH": b"/usr/bin:/bin"}


def new_name() -> str:
    return f"m-{secrets.token_hex(12)}-0001"


class Baseline(Protocol):
    """What a script would do without the product, on a container of one runtime that is up from ``open`` to ``close``."""

    part: str  #: what ``create`` times by itself

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def exec(self, *argv: str) -> None:
        """Run a command to its end, taking all of its output."""

    async def take(self, *argv: str) -> int:
        """Run a command; the number of bytes that it wrote."""

    async def give(self, size: int, *argv: str) -> None:
        """Run a command with ``size`` bytes of input."""

    async def create(self) -> tuple[float, float]:
        """Make another container, run a first command in it, and delete it. The seconds of ``part`` and until the command had ended."""


class Direct:
    """The product without its API: an engine and a guest's client in this process."""

    def __init__(self, engine: Engine, image: str, limits: Limits) -> None:
        self._engine = engine
        self._image = image
        self._limits = limits
        self._names: list[str] = []

    async def open(self) -> None:
        await self._engine.open()

    async def start(self, runtime: str) -> tuple[str, Guest]:
        name = new_name()
        self._names.append(name)
        await self._engine.start(Spec(name, runtime, self._image, WORKDIR, limits=self._limits))
        return name, await Guest.open(await self._engine.connect(name))

    async def close(self) -> None:
        for name in self._names:
            try:
                await self._engine.end(name)
            except SandboxError as error:
                print(f"bench: {name} is left: {error.detail}", file=sys.stderr)
        await self._engine.close()


@dataclass(frozen=True)
class Bench:
    """One engine, with what it is measured by."""

    engine: str
    environment: Mapping[str, str]  #: that the server needs for it
    direct: Direct
    baseline: Callable[[str, str], Baseline]  #: by the runtime, and the name of a sandbox of ``direct`` to make it like


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

    async def reconnect(self) -> None:
        """The server closes a connection that was idle for long."""
        self.client.close()
        self.client = await self.connect()

    async def lease(self, runtime: str) -> str:
        leased = await self.client.call("POST", "/v1/sandboxes", {"runtime": runtime})
        assert (leased["status"], leased["runtime"]) == ("running", runtime), leased
        return str(leased["id"])

    async def end(self, lease: str) -> None:
        await self.client.call("DELETE", f"/v1/sandboxes/{lease}")

    async def close(self) -> None:
        """End what is still leased. On a connection of its own: the other may have been cut in the middle of a request."""
        await self.reconnect()
        for sandbox in (await self.client.call("GET", "/v1/sandboxes"))["sandboxes"]:
            await self.end(sandbox["id"])
        self.client.close()


async def through_api(client: Client, lease: str, *argv: str) -> None:
    """Run a command that succeeds."""
    result = await client.call("POST", f"/v1/sandboxes/{lease}/exec", {"argv": list(argv)})
    assert result["exitCode"] == 0, result
