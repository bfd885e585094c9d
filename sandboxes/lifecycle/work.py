"""Use a lease: run commands in its sandbox, stop them, read and write its files. All of it happens in the guest."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass

from sandboxes import errors
from sandboxes.guest import commands
from sandboxes.guest.client import Command, Guest
from sandboxes.guest.files import FileReader
from sandboxes.guest.protocol import Entry, Stat
from sandboxes.lifecycle.hub import Hub
from sandboxes.models import Sandbox, State

OUTPUT_LIMIT = 1 << 20  #: bytes kept of each output of a command
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENOENT, _ENOTDIR, _EISDIR, _ENOSPC, _EACCES, _ENAMETOOLONG, _ELOOP, _EOVERFLOW = 2, 20, 21, 28, 13, 36, 40, 75


@dataclass(frozen=True)
class Order:
    """A command to run.

    ``directory`` is where, relative to the workdir or absolute; ``timeout`` in seconds; ``margin``: bytes of output to keep beyond
    OUTPUT_LIMIT, so that a secret across the cut is whole.
    """

    argv: Sequence[str]
    stdin: bytes
    directory: str
    env: Mapping[str, str]
    timeout: float
    margin: int = 0


def environment(sandbox: Sandbox) -> dict[str, str]:
    """The environment of everything that runs inside; nothing of the server's own."""
    return {"PATH": PATH, "HOME": sandbox.workdir, "USER": "sandbox", "LANG": "C.UTF-8"}


def require_running(sandbox: Sandbox) -> None:
    if sandbox.state != State.RUNNING:
        raise errors.NotRunning(f"the sandbox is {sandbox.state}, not running", members={"state": sandbox.state})


async def _guest(hub: Hub, sandbox: Sandbox) -> Guest:
    require_running(sandbox)
    return await hub.guest(sandbox.container)


async def execute(hub: Hub, sandbox: Sandbox, order: Order) -> commands.Result:
    """Run a command to its end. A hang-up, the deadline and a draining server end its whole subtree first."""
    guest = await _guest(hub, sandbox)
    variables = environment(sandbox) | dict(order.env)
    command = Command(
        argv=[part.encode() for part in order.argv],
        cwd=posixpath.join(sandbox.workdir, order.directory).encode(),
        env={name.encode(): value.encode() for name, value in variables.items()},
        stdin=bool(order.stdin),
    )
    return await commands.run(
        guest, command, stdin=order.stdin, limit=OUTPUT_LIMIT + order.margin, timeout=order.timeout, interrupt=hub.interrupt
    )


async def stop(hub: Hub, sandbox: Sandbox) -> int:
    """End every command of the sandbox, whichever process waits for it; the number of those that ran."""
    guest = await _guest(hub, sandbox)
    return await guest.stop_all()


def check_path(path: bytes) -> bytes:
    """Refuse what could never be a path in a workdir: NUL bytes and segments that are ``..``."""
    if b"\0" in path or b".." in path.split(b"/"):
        raise errors.PathRefused("a path may not contain NUL or a segment '..'")
    return path


def absolute(sandbox: Sandbox, path: bytes) -> bytes:
    """The path inside the sandbox that ``path`` names, links aside."""
    return posixpath.normpath(posixpath.join(sandbox.workdir.encode(), path))


async def look(hub: Hub, sandbox: Sandbox, path: bytes) -> FileReader | list[Entry]:
    """Open a file, or list a directory, sorted by name. Raises ``PathRefused``, ``NotFound``."""
    guest = await _guest(hub, sandbox)
    try:
        return await guest.read(check_path(path))
    except errors.FileError as error:
        if error.errno != _EISDIR:
            raise _explained(error) from error
    try:
        return sorted(await guest.list(path), key=lambda entry: entry.name)
    except errors.FileError as error:
        raise _explained(error) from error


async def write(hub: Hub, sandbox: Sandbox, path: bytes, chunks: AsyncIterable[bytes]) -> Stat:
    """Write one file, complete or not at all, with the directories that lead to it."""
    guest = await _guest(hub, sandbox)
    if not check_path(path).strip(b"/") or path.endswith(b"/"):
        raise errors.PathRefused("the path names no file")
    try:
        return await guest.write(path, chunks)
    except errors.FileError as error:
        if error.errno in (_ENOENT, _EISDIR, _ENOTDIR, _ENAMETOOLONG, _ELOOP):
            raise errors.PathRefused(f"cannot write there: {error.detail}") from error
        if error.errno == _ENOSPC:
            raise errors.WriteFailed("the disk of the sandbox is full") from error
        raise errors.WriteFailed(error.detail) from error


def _explained(error: errors.FileError) -> errors.SandboxError:
    if error.errno in (_ENOENT, _ENOTDIR):
        return errors.NotFound("no such file or directory")
    if error.errno in (_ENAMETOOLONG, _ELOOP):
        return errors.PathRefused(error.detail)
    if error.errno == _EOVERFLOW:
        return errors.TooLarge(error.detail)
    return errors.NotFound(f"cannot be read: {error.detail}")
