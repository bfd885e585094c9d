"""The client and the real guest together: terminals, and commands that outlast their connection."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandboxes.guest import CannotStart, Command, ExitKind, Guest, Process

ENVIRONMENT = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}


def shell(script: bytes, workdir: Path) -> Command:
    return Command([b"sh", b"-c", script], os.fsencode(workdir), ENVIRONMENT)


async def shown(process: Process, mark: bytes) -> bytes:
    """Read on until ``mark`` was shown; everything that was."""
    seen = b""
    while mark not in seen:
        piece = await process.read()
        assert piece is not None and piece.fd == 1, seen
        seen += piece.data
    return seen


async def test_a_terminal_has_its_size_from_the_first_byte(guest: Guest, workdir: Path) -> None:
    process = await guest.terminal(shell(b"stty size; tty >&2; exit 3", workdir), rows=43, cols=132)
    seen = await shown(process, b"/dev/pts/")
    assert seen.startswith(b"43 132\r\n")
    while await process.read() is not None:
        pass
    assert (await process.wait()).value == 3
    process.release()


async def test_a_terminal_is_resized(guest: Guest, workdir: Path) -> None:
    process = await guest.terminal(
        shell(b"trap 'stty size; exit' WINCH; echo armed; while :; do sleep 0.05; done", workdir), rows=24, cols=80
    )
    await shown(process, b"armed")
    process.resize(50, 100)
    await shown(process, b"50 100")
    await process.wait()
    process.resize(1, 1)  # of what has ended: without effect
    process.release()


async def test_what_is_typed_is_echoed_and_interrupts(guest: Guest, workdir: Path) -> None:
    process = await guest.terminal(shell(b"read line; echo got $line; exec sleep 1000", workdir), rows=24, cols=80)
    await process.write(b"word\n")
    assert (await shown(process, b"got word")).startswith(b"word\r\n")
    await process.write(b"\x03")
    ended = await process.wait()
    assert (ended.kind, ended.value) == (ExitKind.SIGNALED, 2)
    process.release()


async def test_a_program_that_does_not_read_holds_only_its_own_input(guest: Guest, workdir: Path) -> None:
    stuck = await guest.terminal(shell(b"stty raw -echo; echo ready; exec sleep 1000", workdir), rows=24, cols=80)
    await shown(stuck, b"ready")
    typing = asyncio.create_task(stuck.write(bytes(1 << 20)))
    other = await guest.terminal(shell(b"echo alive", workdir), rows=24, cols=80)
    await shown(other, b"alive")
    await other.wait()
    assert not typing.done()
    assert (await stuck.kill()).left == 0
    await typing
    stuck.release()
    other.release()


async def test_stop_all_leaves_terminals_and_lasting_commands_alone(guest: Guest, workdir: Path) -> None:
    os.mkfifo(workdir / "gate")
    process = await guest.terminal(shell(b"echo ready; read line; echo still here", workdir), rows=24, cols=80)
    await shown(process, b"ready")
    ended = await guest.launch_lasting(shell(b"(read line <gate; echo $line >told) & exit 0", workdir))
    assert (ended.kind, ended.value) == (ExitKind.EXITED, 0)
    assert await guest.stop_all() == 0
    await process.write(b"\n")
    await shown(process, b"still here")
    await process.wait()
    process.release()
    writing = await guest.start(shell(b"echo word >gate; while ! grep -q word told; do sleep 0.05; done", workdir))
    assert (await writing.wait()).value == 0
    writing.release()


async def test_a_lasting_command_reads_and_writes_nothing(guest: Guest, workdir: Path) -> None:
    ended = await guest.launch_lasting(shell(b"readlink /proc/self/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 >fds; cat; exit 4", workdir))
    assert (ended.kind, ended.value) == (ExitKind.EXITED, 4)
    assert (workdir / "fds").read_text().split()[0] == "/dev/null"
    with pytest.raises(CannotStart):
        await guest.launch_lasting(Command([b"no-such-program"], os.fsencode(workdir), ENVIRONMENT))


async def test_giving_up_a_terminal_that_starts_leaves_nothing(guest: Guest, workdir: Path) -> None:
    for delay in range(6):
        starting = asyncio.create_task(guest.terminal(shell(b"exec sleep 4242", workdir), rows=24, cols=80))
        for _ in range(delay):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    check = b"while cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -q ^4242$; do sleep 0.05; done"
    process = await guest.start(shell(check, workdir))
    assert (await process.wait()).value == 0
    process.release()
