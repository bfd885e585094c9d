"""One open terminal: the pty in the sandbox at one end, a socket at the other, and bounded queues between. It knows no ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sandboxes import errors
from sandboxes.guest.process import CannotStart, Process
from sandboxes.guest.protocol import Command, ExitKind
from sandboxes.lifecycle.hub import Hub
from sandboxes.lifecycle.threads import in_thread
from terminals import shell, wire
from terminals.access import Admitted
from terminals.watch import Fate, Watch, fates, stamp_used
from terminals.wire import Close

TYPED_MOST = 256 * 1024  #: bytes that wait to be typed before the socket is not read any more
FRAME_MOST = 64 * 1024
STALL_MOST = 180.0  #: seconds that a client may show nothing of what it was sent
NEWS_MOST = 30.0  #: seconds from the loss of a guest until the row tells that its sandbox died: a cluster takes some to find out
SESSION_MOST = 10.0  #: seconds that tmux may take to find or make a session; a stopped one takes for ever
HANG_UP_GRACE = 1.0  #: seconds between the hang-up and the kill
KILL_MOST = 15.0  #: seconds until the guest must have killed what a terminal ran

T = TypeVar("T")
Send = Callable[[bytes], Awaitable[None]]
Tell = Callable[[str], Awaitable[None]]


class Session:
    """``send`` takes output and returns when it is on its way; ``tell`` sends a text frame to a client with flow=1.

    Counts as open from its making until ``clean_up``, which whoever made it calls, come what may.
    """

    def __init__(self, hub: Hub, watch: Watch, admitted: Admitted, *, send: Send, tell: Tell) -> None:
        self.lease = admitted.sandbox.pk
        self.ticket = admitted.ticket.pk
        self._hub = hub
        self._watch = watch
        self._admitted = admitted
        self._send = send
        self._tell = tell
        self._size = (admitted.rows, admitted.cols)
        self._process: Process | None = None
        self._typed = bytearray()
        self._waiting = 0  # bytes that were typed and are not in the pty yet
        self._deaf = False
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._unshown = 0
        self._shown = asyncio.Event()
        self._used = False
        self._fate: asyncio.Future[Fate] = asyncio.get_running_loop().create_future()
        self._cleaning: asyncio.Task[None] | None = None
        watch.add(self)

    # What the socket calls

    async def type(self, data: bytes) -> None:
        """Queue what was typed. Returns when there is room for more: the socket is not read meanwhile."""
        if not self._deaf:
            self._typed += data
            self._waiting += len(data)
            self._more.set()
            if self._waiting > TYPED_MOST:
                self._room.clear()
                await self._room.wait()

    def stop_typing(self) -> None:
        """Nobody wants what still waits to be typed; ``type`` returns at once from now on."""
        self._deaf = True
        self._typed.clear()
        self._room.set()

    def resize(self, size: wire.Resize) -> None:
        self._size = (size.rows, size.cols)
        if self._process is not None:
            self._process.resize(size.rows, size.cols)

    def shown(self, count: int) -> None:
        """The client has shown ``count`` more bytes."""
        self._unshown = max(0, self._unshown - count)
        self._shown.set()

    async def run(self) -> Fate:
        """Serve the terminal to its end, and say how it ended."""
        try:
            opened = await self._first(self._open())
            if opened is not None:
                return opened
            return await self._first(self._output(self._running), self._input(self._running))
        except CannotStart as error:
            return Fate(Close.LOST, f"no shell could be started: {error.text}")
        except errors.SandboxError:
            return await self._why_lost()
        finally:
            self.stop_typing()

    async def clean_up(self) -> None:
        """Hang up, then end what the terminal ran. A tmux server is not part of that. May be called, and cancelled, again and again."""
        if self._cleaning is None:
            self._cleaning = asyncio.create_task(self._clean_up())
        await asyncio.shield(self._cleaning)

    # What the watch calls

    def lease_ended(self, fate: Fate) -> None:
        if not self._fate.done():
            self._fate.set_result(fate)

    def take_use(self) -> bool:
        used, self._used = self._used, False
        return used

    # Inside

    async def _first(self, *works: Coroutine[Any, Any, T]) -> T | Fate:
        """The result of whichever is done first, the others cancelled; the lease's end comes before all of them."""
        tasks = [asyncio.create_task(work) for work in works]
        waited: list[asyncio.Future[Any]] = [*tasks, self._fate]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._fate.done():
                return self._fate.result()
            first = next(task for task in tasks if task.done())
            if first.cancelled():
                raise errors.GuestLost("the connection to the guest was given up while it was being made")
            return first.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self) -> None:
        """Start the shell at the size that the window has by then."""
        guest = await self._hub.guest(self._admitted.sandbox.container)
        sandbox, name = self._admitted.sandbox, self._admitted.session
        command: Command | None = None
        if name:
            with contextlib.suppress(TimeoutError, CannotStart):
                async with asyncio.timeout(SESSION_MOST):
                    ensured = await guest.launch_lasting(shell.ensure_session(sandbox, name, *self._size))
                    if ensured.kind is ExitKind.EXITED and ensured.value == 0:
                        command = shell.attach(sandbox, name)
        rows, cols = size = self._size
        self._process = await guest.terminal(command or shell.login(sandbox), rows=rows, cols=cols)
        if size != self._size:
            self._process.resize(*self._size)

    async def _output(self, process: Process) -> Fate:
        """Bring output to the client at its pace, to the end of the shell."""
        flow = self._admitted.flow
        while (piece := await process.read(until_exit=True)) is not None:
            self._used = True
            for start in range(0, len(piece.data), FRAME_MOST):
                frame = piece.data[start : start + FRAME_MOST]
                if flow and not await self._until_shown(len(frame)):
                    return Fate(Close.TOO_SLOW, f"the client showed nothing for {STALL_MOST:.0f} s")
                await self._send(frame)
        ended = await process.wait()
        if ended.kind is ExitKind.SIGNALED:
            words = wire.farewell(signal_number=ended.value)
        else:
            words = wire.farewell(code=ended.value)
        if not flow:
            await self._send(f"\r\n[{words}]\r\n".encode())
        return Fate(Close.EXITED, words)

    async def _until_shown(self, count: int) -> bool:
        """Wait until the client may be sent ``count`` more bytes. False when it stands still for too long."""
        while self._unshown + count > wire.UNSHOWN_MOST:
            self._shown.clear()
            try:
                async with asyncio.timeout(STALL_MOST):
                    await self._shown.wait()
            except TimeoutError:
                return False
        self._unshown += count
        return True

    async def _input(self, process: Process) -> Fate:
        """Type into the pty at its pace."""
        while True:
            await self._more.wait()
            self._more.clear()
            self._used = True
            data = bytes(self._typed)
            self._typed.clear()
            for start in range(0, len(data), FRAME_MOST):
                part = data[start : start + FRAME_MOST]
                await process.write(part)
                self._waiting -= len(part)
                if self._waiting <= TYPED_MOST:
                    self._room.set()
                if self._admitted.flow:
                    await self._tell(wire.message(ack=len(part)))

    async def _why_lost(self) -> Fate:
        """The guest's connection is gone: the row knows, or will in a moment, whether the sandbox is. One that can be reached lives."""
        loop = asyncio.get_running_loop()
        until = loop.time() + NEWS_MOST
        lives = False
        while True:
            found = await in_thread(fates, [self.lease])
            if self.lease in found:
                return found[self.lease]
            if lives or loop.time() >= until:
                return Fate(Close.LOST, "the connection to the sandbox was lost; open the terminal anew")
            try:
                await self._hub.guest(self._admitted.sandbox.container)
                lives = True
            except errors.EngineUnavailable:  # nobody can tell
                lives = True
            except errors.SandboxError:
                await asyncio.sleep(0.2)

    async def _clean_up(self) -> None:
        self.stop_typing()
        try:
            if self._process is not None:
                await self._end(self._process)
        finally:
            self._watch.remove(self)
        if self.take_use():
            await in_thread(stamp_used, [self.lease])

    async def _end(self, process: Process) -> None:
        try:
            async with asyncio.timeout(KILL_MOST):
                await process.kill(signal.SIGHUP)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HANG_UP_GRACE):
                        await process.wait()
                await process.kill()
        except errors.GuestLost:
            return  # then the guest does it
        except TimeoutError:
            process.abandon()
        else:
            process.release()

    @property
    def _running(self) -> Process:
        assert self._process is not None  # noqa: S101  (_open has started it)
        return self._process
