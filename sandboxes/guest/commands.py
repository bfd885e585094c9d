"""Run a command to its end: what it wrote, how it ended, and nothing of it left when time is up."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import signal
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Final

from sandboxes.errors import GuestLost
from sandboxes.guest.client import Guest
from sandboxes.guest.process import CannotStart, CannotStartKind, Process
from sandboxes.guest.protocol import Command, Exit, ExitKind

#: The guest gives up on a kill after 10 s; one that says nothing until now is not going to.
KILL_TIMEOUT: Final = 15.0
#: After the kill: for the main process to be reaped and its last output to come.
_LAST_OUTPUT_TIMEOUT: Final = 2.0
_NOT_FOUND, _CANNOT_EXECUTE, _BY_SIGNAL = 127, 126, 128


class Outcome(enum.Enum):
    EXITED = "exited"
    SIGNALED = "signaled"
    NOT_STARTED = "not_started"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Result:
    outcome: Outcome
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    code: int  #: exit code; 128 + n for signal n, which is 9 when timed out or stopped; 127 or 126 when not started
    signal: int | None = None
    start_error: str | None = None
    left: int = 0  #: processes that survived the kill; normally 0


class RunLost(GuestLost):
    """The connection was lost while a command ran: its outcome is unknown, and the guest ends it. Carries what it had written."""

    def __init__(self, detail: str, output: Collected) -> None:
        super().__init__(detail)
        self.stdout, self.stdout_truncated = bytes(output.stdout), output.stdout_truncated
        self.stderr, self.stderr_truncated = bytes(output.stderr), output.stderr_truncated


class Collected:
    """The first ``limit`` bytes of each output."""

    def __init__(self, limit: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.stdout_truncated = False
        self.stderr_truncated = False
        self._limit = limit

    async def until_exit(self, process: Process) -> Exit:
        """Take all that comes until the command has exited, beyond the limit too, so that it does not block."""
        while (piece := await process.read(until_exit=True)) is not None:
            kept = self.stdout if piece.fd == 1 else self.stderr
            room = self._limit - len(kept)
            if len(piece.data) <= room:
                kept += piece.data
            else:
                kept += piece.data[:room]
                if piece.fd == 1:
                    self.stdout_truncated = True
                else:
                    self.stderr_truncated = True
        return await process.wait()

    def result(self, outcome: Outcome, code: int, *, signal: int | None = None, start_error: str | None = None, left: int = 0) -> Result:
        return Result(
            outcome,
            bytes(self.stdout),
            bytes(self.stderr),
            self.stdout_truncated,
            self.stderr_truncated,
            code,
            signal,
            start_error,
            left,
        )

    def result_of(self, exit: Exit) -> Result:
        if exit.kind.never_ran:
            code = _NOT_FOUND if exit.kind is ExitKind.NOT_FOUND else _CANNOT_EXECUTE
            return self.result(Outcome.NOT_STARTED, code, start_error=exit.text)
        if exit.kind is ExitKind.STOPPED:
            return self.result(Outcome.STOPPED, _BY_SIGNAL + signal.SIGKILL, signal=signal.SIGKILL)
        if exit.kind is ExitKind.SIGNALED:
            return self.result(Outcome.SIGNALED, _BY_SIGNAL + exit.value, signal=exit.value)
        return self.result(Outcome.EXITED, exit.value)


class Interrupt:
    """Tells commands under way, and those to come, to give up at once."""

    def __init__(self) -> None:
        self.given = False
        self._deadlines: set[asyncio.Timeout] = set()

    def give(self) -> None:
        self.given = True
        for deadline in self._deadlines:
            if not deadline.expired():  # its command has not been told yet
                deadline.reschedule(0)

    @contextlib.contextmanager
    def cuts(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Bring ``deadline`` forward when the interrupt is given meanwhile."""
        self._deadlines.add(deadline)
        if self.given:
            deadline.reschedule(0)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)


async def run(
    guest: Guest, command: Command, *, stdin: bytes = b"", limit: int = 1 << 20, timeout: float, interrupt: Interrupt | None = None
) -> Result:
    """Run ``command`` with ``stdin`` as its input, and collect up to ``limit`` bytes of each output.

    Returns when its main process has exited; what it left in the background keeps running, its later output is discarded.
    After ``timeout`` seconds, at an ``interrupt``, and when cancelled, everything that it started is killed before this returns or raises.
    Raises ``RunLost``, a ``GuestLost``; also ``GuestLost`` before it began.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    interrupt = interrupt or Interrupt()
    output = Collected(limit)
    try:
        async with asyncio.timeout_at(deadline):
            process = await guest.launch(replace(command, stdin=True) if stdin and not command.stdin else command)
    except CannotStart as error:
        code = _NOT_FOUND if error.kind is CannotStartKind.NOT_FOUND else _CANNOT_EXECUTE
        return output.result(Outcome.NOT_STARTED, code, start_error=error.text)
    except TimeoutError:
        return output.result(Outcome.TIMED_OUT, _BY_SIGNAL + signal.SIGKILL, signal=signal.SIGKILL)
    feeding = None if process.feed(stdin) else asyncio.create_task(_feed(process, stdin))
    try:
        try:
            async with asyncio.timeout_at(deadline) as timer:
                with interrupt.cuts(timer):
                    return output.result_of(await output.until_exit(process))
        except TimeoutError:
            left = await _uninterrupted(_kill(guest, process, output))
            outcome = Outcome.INTERRUPTED if interrupt.given else Outcome.TIMED_OUT
            return output.result(outcome, _BY_SIGNAL + signal.SIGKILL, signal=signal.SIGKILL, left=left)
        except asyncio.CancelledError:
            with contextlib.suppress(GuestLost):  # then the guest kills
                await _uninterrupted(_kill(guest, process, output))
            raise
    except GuestLost as error:
        raise RunLost(error.detail, output) from None
    finally:
        process.release()
        if feeding is not None:
            feeding.cancel()
            await asyncio.wait({feeding})


async def _feed(process: Process, stdin: bytes) -> None:
    with contextlib.suppress(GuestLost):  # the reader of the output raises it
        await process.write(stdin)
        process.close_stdin()


async def _kill(guest: Guest, process: Process, output: Collected) -> int:
    """Kill all of the command and take its last output. Returns how many processes are left."""
    try:
        async with asyncio.timeout(KILL_TIMEOUT):
            killed = await process.kill()
    except TimeoutError:
        guest.end("the guest did not answer a kill")
        raise GuestLost("the guest did not answer a kill") from None
    with contextlib.suppress(TimeoutError):  # a process that cannot be killed does not exit either: `left` tells
        async with asyncio.timeout(_LAST_OUTPUT_TIMEOUT):
            await output.until_exit(process)
    return killed.left


async def _uninterrupted(work: Coroutine[None, None, int]) -> int:
    """Do ``work`` to its end, also when cancelled meanwhile; that is raised afterwards."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with contextlib.suppress(GuestLost):
            task.result()
        raise cancelled
    return task.result()
