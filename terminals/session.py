"""One open terminal: the pty in the sandbox at one end, a socket at the other, and bounded queues between. It knows no ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from sandboxes import errors
from sandboxes.guest.client import Guest
from sandboxes.guest.process import CannotStart, Process
from sandboxes.guest.protocol import ExitKind
from sandboxes.lifecycle import transitions
from sandboxes.lifecycle.hub import Hub
from sandboxes.lifecycle.threads import in_thread
from terminals import shell, wire
from terminals.access import Admitted
from terminals.watch import Fate, Watch, fates
from terminals.wire import Close

TYPED_MOST = 256 * 1024  #: bytes that wait to be typed before the socket is not read any more
FRAME_MOST = 64 * 1024
STALL_MOST = 180.0  #: seconds that a client may show nothing of what it was sent
TOUCH_EVERY = 10.0  #: seconds between two stamps of lastUsedAt
NEWS_MOST = 3.0  #: seconds from the loss of a guest until the row tells that its sandbox died
HANG_UP_GRACE = 1.0  #: seconds between the hang-up and the kill

Send = Callable[[bytes], Awaitable[None]]
Tell = Callable[[str], Awaitable[None]]


class Session:
    """``send`` takes output and returns when it is on its way; ``tell`` sends a text frame to a client with flow=1."""

    def __init__(self, hub: Hub, watch: Watch, admitted: Admitted, *, send: Send, tell: Tell) -> None:
        self.lease = admitted.sandbox.pk
        self._hub = hub
        self._watch = watch
        self._admitted = admitted
        self._send = send
        self._tell = tell
        self._size = (admitted.rows, admitted.cols)
        self._process: Process | None = None
        self._typed: list[bytes] = []
        self._typed_size = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._unshown = 0
        self._shown = asyncio.Event()
        self._touched = 0.0
        self._fate: asyncio.Future[Fate] = asyncio.get_running_loop().create_future()

    # What the socket calls

    async def type(self, data: bytes) -> None:
        """Queue what was typed. Returns when there is room for more: the socket is not read meanwhile."""
        self._typed.append(data)
        self._typed_size += len(data)
        self._more.set()
        if self._typed_size > TYPED_MOST:
            self._room.clear()
            await self._room.wait()

    def resize(self, size: wire.Resize) -> None:
        self._size = (size.rows, size.cols)
        if self._process is not None:
            self._process.resize(size.rows, size.cols)

    def shown(self, count: int) -> None:
        """The client has shown ``count`` more bytes."""
        self._unshown = max(0, self._unshown - count)
        self._shown.set()

    def lease_ended(self, fate: Fate) -> None:
        if not self._fate.done():
            self._fate.set_result(fate)

    async def run(self) -> Fate:
        """Serve the terminal to its end, and say how it ended. Whoever calls it calls ``clean_up`` afterwards, come what may."""
        self._watch.add(self)
        guest = await self._guest()
        if isinstance(guest, Fate):
            return guest
        try:
            command = await self._command(guest)
            self._process = await guest.terminal(command, rows=self._size[0], cols=self._size[1])
        except CannotStart as error:
            return Fate(Close.LOST, f"no shell could be started: {error.text}")
        except errors.GuestLost:
            return await self._why_lost()
        pumps = [asyncio.create_task(self._output()), asyncio.create_task(self._input())]
        try:
            await asyncio.wait([*pumps, self._fate], return_when=asyncio.FIRST_COMPLETED)
            if self._fate.done():
                return self._fate.result()
            return await next(pump for pump in pumps if pump.done())
        except errors.GuestLost:
            return await self._why_lost()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def clean_up(self) -> None:
        """Hang up, then end what the terminal ran. A tmux server is not part of that."""
        self._watch.remove(self)
        if self._process is not None:
            with contextlib.suppress(errors.GuestLost):  # then the guest does it
                await self._process.kill(signal.SIGHUP)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HANG_UP_GRACE):
                        await self._process.wait()
                await self._process.kill()
            self._process.release()

    # Inside

    async def _guest(self) -> Guest | Fate:
        try:
            return await self._hub.guest(self._admitted.sandbox.container)
        except errors.SandboxError:
            return await self._why_lost()

    async def _command(self, guest: Guest) -> Any:
        sandbox, name = self._admitted.sandbox, self._admitted.session
        if name:
            ensured = await guest.launch_lasting(shell.ensure_session(sandbox, name, *self._size))
            if ensured.kind is ExitKind.EXITED and ensured.value == 0:
                return shell.attach(sandbox, name)
        return shell.login(sandbox)

    async def _output(self) -> Fate:
        """Bring output to the client at its pace, to the end of the shell."""
        process, flow = self._running, self._admitted.flow
        while (piece := await process.read(until_exit=True)) is not None:
            for start in range(0, len(piece.data), FRAME_MOST):
                frame = piece.data[start : start + FRAME_MOST]
                if flow and not await self._until_shown(len(frame)):
                    return Fate(Close.TOO_SLOW, f"the client showed nothing for {STALL_MOST:.0f} s")
                await self._send(frame)
            await self._touch()
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

    async def _input(self) -> Fate:
        """Type into the pty at its pace."""
        process, flow = self._running, self._admitted.flow
        while True:
            await self._more.wait()
            self._more.clear()
            data = b"".join(self._typed)
            self._typed.clear()
            for start in range(0, len(data), FRAME_MOST):
                part = data[start : start + FRAME_MOST]
                await process.write(part)
                self._typed_size -= len(part)
                if self._typed_size <= TYPED_MOST:
                    self._room.set()
                if flow:
                    await self._tell(wire.message(ack=len(part)))
            await self._touch()

    async def _touch(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._touched >= TOUCH_EVERY:
            self._touched = now
            await in_thread(transitions.touch, self._admitted.sandbox)

    async def _why_lost(self) -> Fate:
        """The guest's connection is gone: the row knows, or will in a moment, whether the sandbox is."""
        loop = asyncio.get_running_loop()
        until = loop.time() + NEWS_MOST
        while True:
            found = await in_thread(fates, [self.lease])
            if self.lease in found:
                return found[self.lease]
            if loop.time() >= until:
                return Fate(Close.LOST, "the connection to the sandbox was lost; open the terminal anew")
            await asyncio.sleep(0.2)

    @property
    def _running(self) -> Process:
        assert self._process is not None  # noqa: S101  (run has started it)
        return self._process
