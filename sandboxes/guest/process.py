"""A command that runs in a sandbox."""

from __future__ import annotations

import asyncio
import enum
import errno
import os
import signal
from dataclasses import dataclass

from sandboxes.errors import GuestLost, SandboxError
from sandboxes.guest import protocol as wire
from sandboxes.guest.connection import Connection
from sandboxes.guest.flow import LARGE_WINDOW, TERMINAL_WINDOW, Pieces, Waiters, Window
from sandboxes.guest.protocol import MAX_FRAME, MAX_START, U32, Command, Exit, ExitKind, Killed, Send, Violation

_FIRST_WINDOW = 64 << 10
_KILLS_AT_ONCE = 4  # of one command; the guest takes no more
_STDOUT, _STDERR = 1, 2
_DESCRIPTORS = {wire.OUT: _STDOUT, wire.ERR: _STDERR}


class CannotStartKind(enum.Enum):
    NOT_FOUND = "not_found"
    NOT_EXECUTABLE = "not_executable"
    BAD_CWD = "bad_cwd"
    LIMIT = "limit"  #: processes, memory or descriptors of the sandbox; may work later
    OTHER = "other"


class CannotStart(SandboxError):
    """The command never ran. ``detail`` and ``text`` are the reason in plain words."""

    status, code = 502, "exec_failed"

    def __init__(self, kind: CannotStartKind, errno: int, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.errno = errno
        self.text = text


@dataclass(frozen=True)
class Output:
    fd: int  #: 1 or 2
    data: bytes  #: never empty


class Process:
    """One command. At most one task reads and one writes at a time; every wait may be cancelled.

    Whoever started it calls ``release`` in the end; until then it counts against the streams of its connection.
    """

    def __init__(self, connection: Connection, command: Command) -> None:
        """Sends START. Raises ``CannotStart`` when the command is too long to be sent."""
        self.pid = 0
        self._connection = connection
        self._window = Window(connection.budget, _FIRST_WINDOW, TERMINAL_WINDOW if command.pty else LARGE_WINDOW)
        payload = wire.start_payload(command, self._window.first)
        if len(payload) > MAX_START:
            self._window.close()
            raise CannotStart(CannotStartKind.OTHER, errno.E2BIG, os.strerror(errno.E2BIG))
        self._stdin_open = command.stdin or command.pty is not None
        self._credit = connection.input_credit if self._stdin_open else 0
        self._pieces = Pieces()
        self._open_outputs = set() if command.lasting else {_STDOUT} if command.pty else {_STDOUT, _STDERR}
        self._exit: Exit | None = None
        self._tree_ended = False
        self._kills: dict[int, asyncio.Future[Killed | None]] = {}
        self._abandoned = False
        self._released = False
        self._forgotten = False
        self._started = Waiters()
        self._readable = Waiters()
        self._writable = Waiters()
        self._exited = Waiters()
        self._killable = Waiters()
        self._number = connection.add(self)
        connection.send(Send.START, self._number, payload)

    # What callers do

    async def started(self) -> None:
        """Wait until it runs. Raises ``CannotStart`` and ``GuestLost``."""
        while self.pid == 0 and self._exit is None:
            self._connection.check()
            await self._started.wait()
        if self._exit is not None and self._exit.kind.never_ran:
            raise CannotStart(CannotStartKind[self._exit.kind.name], self._exit.value, self._exit.text)

    async def write(self, data: bytes) -> None:
        """Write to stdin, at the pace of the command. Returns silently once it has exited. Raises ``GuestLost``."""
        rest = memoryview(data)
        while rest and self._exit is None:
            self._connection.check()
            if not self._stdin_open:
                raise ValueError("stdin is closed")
            if not (sent := self._send_input(rest)):
                await self._writable.wait()
                continue
            rest = rest[sent:]
            await self._connection.drain()

    def close_stdin(self) -> None:
        """No more input. Idempotent."""
        if self._stdin_open:
            self._stdin_open = False
            if self._exit is None:
                self._connection.send(Send.EOF, self._number)

    def feed(self, data: bytes) -> bool:
        """Write all of ``data`` to stdin and close it, if there is credit for it at once. Returns whether."""
        if len(data) > self._credit:
            return False
        rest = memoryview(data)
        while rest:
            rest = rest[self._send_input(rest) :]
        self.close_stdin()
        return True

    def resize(self, rows: int, cols: int) -> None:
        """Set the size of its terminal, 1 to 1000 each."""
        if self._exit is None:
            self._connection.send(Send.RESIZE, self._number, wire.SIZE.pack(rows, cols))

    async def read(self, *, until_exit: bool = False) -> Output | None:
        """The next piece of output; None when both outputs have ended, with ``until_exit`` also once the command has exited.

        Processes that a command left behind may hold its outputs open long after its exit. Raises ``GuestLost`` after all that had come.
        """
        while True:
            piece = self._pieces.get()
            if piece is not None:
                self._give_credit(len(piece[1]))
                return Output(*piece)
            if not self._open_outputs or self._released or (self._exit is not None and (until_exit or not self.pid)):
                return None
            self._connection.check()
            await self._readable.wait()

    async def wait(self) -> Exit:
        """Wait until the main process has ended. Unread output beyond the window holds it up. Raises ``GuestLost``."""
        while self._exit is None:
            self._connection.check()
            await self._exited.wait()
        return self._exit

    async def kill(self, signal: int = signal.SIGKILL, *, tree: bool = True) -> Killed:
        """Send ``signal`` (1 to 64) to the command's whole subtree, or to its main process only, also after its exit.

        SIGKILL to the subtree returns once nothing of it is left, or after 10 s with what is. Raises ``GuestLost``.
        """
        if signal not in range(1, 65):
            raise ValueError("no such signal")
        while (self.pid == 0 and self._exit is None) or len(self._kills) >= _KILLS_AT_ONCE:
            self._connection.check()
            await (self._killable if self.pid else self._started).wait()
        if self.pid == 0:
            return Killed(0, 0, 0)
        self._connection.check()
        if self._released:
            raise RuntimeError("the process was released")
        answer = await self._send_kill(signal, tree)
        if answer is None:
            raise GuestLost(self._connection.reason or "")
        return answer

    def release(self) -> None:
        """Let go of it once it has exited; its output is discarded from now on, and what runs of it keeps running. Idempotent."""
        self._released = True
        if discarded := self._pieces.size:
            self._pieces.clear()
            self._give_credit(discarded)
        self._readable.wake()
        self._settle()

    def abandon(self) -> None:
        """Nobody waits for it any more: kill the subtree as soon as it can be, then release it. Returns at once."""
        self._abandoned = not self._released
        self._kill_abandoned()
        self.release()

    # connection.Stream

    def frame(self, kind: int, payload: memoryview) -> None:
        if kind == wire.OUT or kind == wire.ERR:
            self._got_output(_DESCRIPTORS[kind], payload)
        elif kind == wire.CREDIT:
            (credit,) = wire.unpack(U32, payload)
            self._credit += credit
            self._writable.wake()
        elif kind == wire.OUTEOF:
            (which,) = wire.unpack(wire.U8, payload)
            if _DESCRIPTORS.get(which) not in self._open_outputs or not self.pid:
                raise Violation("the end of an output that is not open")
            self._open_outputs.remove(_DESCRIPTORS[which])
            self._readable.wake()
        elif kind == wire.STARTED:
            self._got_started(payload)
        elif kind == wire.EXIT:
            self._got_exit(payload)
        elif kind == wire.GOT_KILLED:
            request, rounds, killed, left = wire.unpack(wire.KILLED, payload)
            future = self._kills.pop(request, None)
            if future is None:
                raise Violation("an answer to a kill that was not asked for")
            if not future.done():
                future.set_result(Killed(rounds, killed, left))
            self._kill_abandoned()
            self._killable.wake()
            self._settle()
        elif kind == wire.TREE:
            if payload or self._tree_ended or not self.pid:
                raise Violation("an unexpected end of a subtree")
            self._tree_ended = True
        elif kind == wire.ERROR and not self.pid and self._exit is None:
            text = wire.clean_text(wire.decode_string(payload))
            self._ended(Exit(ExitKind.OTHER, errno.EPROTO, f"the guest refused the command: {text}"))
        else:
            raise Violation(f"an unexpected frame of type {kind:#x} for a command")

    def wake(self) -> None:
        for future in self._kills.values():
            if not future.done():
                future.set_result(None)
        self._wake_all()

    # Inside

    def _got_output(self, fd: int, payload: memoryview) -> None:
        if not payload or not self.pid or fd not in self._open_outputs:
            raise Violation("output where none belongs")
        self._window.received(len(payload))
        if self._released:
            self._give_credit(len(payload))
        else:
            self._pieces.put(fd, payload)
            self._readable.wake()

    def _got_started(self, payload: memoryview) -> None:
        (pid,) = wire.unpack(U32, payload)
        if not pid or self.pid or self._exit is not None:
            raise Violation("an unexpected STARTED")
        self.pid = pid
        self._started.wake()
        self._kill_abandoned()

    def _got_exit(self, payload: memoryview) -> None:
        number, value, text = wire.decode_exit(payload)
        try:
            kind = ExitKind(number)
        except ValueError:
            raise Violation(f"an EXIT of kind {number} for a command") from None
        if self._exit is not None or (kind is not ExitKind.STOPPED and kind.never_ran == bool(self.pid)):
            raise Violation("an unexpected EXIT")
        valid = range(1, 4096) if kind.never_ran else range(1, 65) if kind is ExitKind.SIGNALED else range(256)
        if kind is not ExitKind.STOPPED and value not in valid:
            raise Violation(f"an EXIT of kind {number} with the value {value}")
        self._ended(Exit(kind, value, wire.error_text(value, text) if kind.never_ran else wire.clean_text(text)))

    def _ended(self, exit: Exit) -> None:
        self._exit = exit
        self._wake_all()
        self._settle()

    def _wake_all(self) -> None:
        for waiters in (self._started, self._readable, self._writable, self._exited, self._killable):
            waiters.wake()

    def _send_input(self, data: memoryview) -> int:
        size = min(len(data), self._credit, MAX_FRAME)
        if size:
            self._credit -= size
            self._connection.send_input(self._number, data[:size])
        return size

    def _give_credit(self, amount: int) -> None:
        credit = self._window.consumed(amount, drained=not self._pieces.size)
        if credit:
            self._connection.send(Send.CREDIT, self._number, U32.pack(credit))

    def _kill_abandoned(self) -> None:
        if self._abandoned and self.pid and len(self._kills) < _KILLS_AT_ONCE:
            self._abandoned = False
            self._send_kill(signal.SIGKILL, True)

    def _send_kill(self, signal: int, tree: bool) -> asyncio.Future[Killed | None]:
        request = self._connection.request_number()
        future: asyncio.Future[Killed | None] = asyncio.get_running_loop().create_future()
        self._kills[request] = future
        self._connection.send(Send.KILL, self._number, wire.KILL.pack(request, signal, 1 if tree else 0))
        return future

    def _settle(self) -> None:
        """Forget the stream as soon as that is legal: at an EXIT without STARTED; else after EXIT, ``release`` and all answers to kills."""
        if self._forgotten or self._exit is None or (self.pid and (self._kills or not self._released)):
            return
        self._forgotten = True
        if self.pid:
            self._connection.send(Send.RELEASE, self._number)
        self._connection.remove(self._number, late=self._window.held)
        self._window.close()
