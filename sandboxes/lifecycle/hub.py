"""The running half of the leases: one engine, the connections to the guests, and the tasks that start and end sandboxes.

One hub per process, on one event loop: the server's own, or a thread's in a management command. Nothing that another process needs lives
here:
a lost hub loses only connections and tasks, and ``reconcile`` takes the rows up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from sandboxes import errors, policy
from sandboxes.engine.base import Engine
from sandboxes.guest.client import Guest
from sandboxes.guest.commands import Interrupt
from sandboxes.lifecycle import transitions
from sandboxes.lifecycle.threads import in_thread
from sandboxes.lifecycle.transitions import Plan

log = structlog.get_logger(__name__)

PING_EVERY = 10.0  #: seconds between two pings of an idle guest
SILENCE_MOST = 30.0  #: seconds that a guest may leave pings and a fresh connection unanswered before it counts as dead


class Hub:
    """Starts, reaches and ends the sandboxes of this host. All methods run on the loop that ``open`` ran on."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.warnings: tuple[str, ...] = ()  #: what the last audit found
        self.interrupt = Interrupt()  #: given when running commands must give up: the server drains
        self._starts: dict[str, asyncio.Task[None]] = {}  # by lease
        self._ends: dict[str, asyncio.Task[None]] = {}  # by lease
        self._guests: dict[str, asyncio.Task[Guest]] = {}  # by container
        self._background: set[asyncio.Task[Any]] = set()
        self._suspects: set[str] = set()

    async def open(self) -> None:
        """Prove the engine. Raises ``EngineError``."""
        self.loop = asyncio.get_running_loop()
        self.engine.watch(lambda name, reason: self._spawn(self._died(name, reason)))
        await self.engine.open()
        self._spawn(self._listen_for_silence())

    async def close(self) -> None:
        """Stop what this process does; sandboxes keep running.

        A start that is cut short leaves nothing, and is taken up by the next process.
        """
        tasks = [*self._starts.values(), *self._ends.values(), *self._background, *self._guests.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.engine.close()

    # Starting

    def begin_start(self, lease: str, plan: Plan) -> asyncio.Task[None]:
        """Start the sandbox of a pending lease, as a task of the hub's own: a caller's hang-up does not stop it."""
        task = self._starts.get(lease)
        if task is None:
            task = self._starts[lease] = asyncio.create_task(self._start(lease, plan))
            task.add_done_callback(lambda _: self._starts.pop(lease, None))
        return task

    async def wait_started(self, lease: str, timeout: float) -> None:
        """Wait until this process has brought ``lease`` up or failed to, ``timeout`` seconds at most."""
        if lease in self._starts:
            await asyncio.wait([self._starts[lease]], timeout=timeout)

    def starting(self, lease: str) -> bool:
        return lease in self._starts

    async def _start(self, lease: str, plan: Plan) -> None:
        spec = plan.spec
        try:
            if spec.volume is not None:
                await self.engine.ensure_volume(spec.volume, plan.volume_size)
            running = await self.engine.start(spec)
            await self.guest(spec.name)
        except errors.SandboxError as error:
            await self.lost(spec.name, error.detail)
            return
        except Exception:
            log.exception("a sandbox could not be started", lease=lease)
            await self.lost(spec.name, "an internal error of the control plane")
            return
        if not await in_thread(transitions.started, spec.name, running):
            # Ended meanwhile, here or by another process: whoever ended it may have looked before there was anything to see.
            await self.remove(spec.name)

    # Ending

    def begin_end(self, lease: str) -> asyncio.Task[None]:
        """End the sandbox of a lease that is ``ending``, as a task of the hub's own."""
        task = self._ends.get(lease)
        if task is None:
            task = self._ends[lease] = asyncio.create_task(self._end(lease))
            task.add_done_callback(lambda _: self._ends.pop(lease, None))
        return task

    async def wait_ended(self, lease: str, timeout: float) -> None:
        """Wait until this process has ended ``lease`` or failed to, ``timeout`` seconds at most."""
        if lease in self._ends:
            await asyncio.wait([self._ends[lease]], timeout=timeout)

    async def _end(self, lease: str) -> None:
        if start := self._starts.get(lease):
            start.cancel()
            await asyncio.wait([start])
        plan = await in_thread(transitions.ending, lease)
        if plan is None:
            return
        try:
            self._forget(plan.container)
            await self.engine.end(plan.container)
            if plan.volume is not None:
                await self.engine.delete_volume(plan.volume)
        except errors.SandboxError as error:
            log.warning("a sandbox could not be ended yet", lease=lease, reason=error.detail)
            await in_thread(transitions.end_failed, lease, error.detail)
        except Exception as error:
            log.exception("a sandbox could not be ended yet", lease=lease)
            await in_thread(transitions.end_failed, lease, f"internal error: {error}")
        else:
            await in_thread(transitions.ended, lease, purged=plan.volume)

    async def _died(self, name: str, reason: str) -> None:
        """The engine saw a sandbox die. While another process starts it, that one tells: it may have ended it itself, and knows why."""
        lease, _ = policy.lease_of(name)
        if self.starting(lease) or not await in_thread(transitions.is_pending, name):
            await self.lost(name, reason)

    async def lost(self, name: str, reason: str) -> None:
        """The sandbox failed or died: the lease goes to error, and what is left of the sandbox is removed."""
        if await in_thread(transitions.failed, name, reason):
            log.warning("a sandbox failed", container=name, reason=reason)
        self._forget(name)
        await self.remove(name)

    async def remove(self, name: str) -> None:
        """End a sandbox that no lease needs; reconcile tries again when it fails."""
        try:
            await self.engine.end(name)
        except errors.SandboxError as error:
            log.warning("left-overs could not be removed yet", container=name, reason=error.detail)
        else:
            await in_thread(transitions.released, name)

    # Reaching

    async def guest(self, name: str) -> Guest:
        """The connection to the guest of a running sandbox; made anew when the last one was lost.

        Raises ``SandboxGone``, ``EngineError`` or ``GuestLost``.
        """
        task = self._guests.get(name)
        if task is not None and task.done() and (task.cancelled() or task.exception() or task.result().lost.done()):
            task = None
        if task is None:
            task = self._guests[name] = asyncio.create_task(self._connect(name))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if (
                task.cancelled() and waiting is not None and not waiting.cancelling()
            ):  # the sandbox ends; who waits for it was not cancelled
                raise errors.SandboxGone("The sandbox ended.") from None
            raise
        except errors.SandboxGone:
            raise
        except (errors.GuestLost, errors.EngineError):
            self._suspect(name)
            raise

    async def _connect(self, name: str) -> Guest:
        return await Guest.open(await self.engine.connect(name))

    def _forget(self, name: str) -> None:
        if task := self._guests.pop(name, None):
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
            else:
                task.cancel()

    async def _listen_for_silence(self) -> None:
        """Everything may look well from outside while a guest is frozen: only its silence tells."""
        while True:
            await asyncio.sleep(PING_EVERY)
            for name, task in list(self._guests.items()):
                if task.done() and not task.cancelled() and task.exception() is None:
                    self._spawn(self._ping(name, task.result()))

    async def _ping(self, name: str, guest: Guest) -> None:
        try:
            async with asyncio.timeout(2 * PING_EVERY):
                await guest.ping()
        except (TimeoutError, errors.GuestLost):
            if self._guests.get(name) and not self._guests[name].cancelled():
                self._suspect(name)

    def _suspect(self, name: str) -> None:
        if name not in self._suspects:
            self._suspects.add(name)
            self._spawn(self._investigate(name))

    async def _investigate(self, name: str) -> None:
        """A guest that did not answer gets fresh connections for a while; then it is dead.

        Time that the engine itself cannot be asked does not count: that says nothing about the sandbox.
        """
        loop = asyncio.get_running_loop()
        last = ""
        try:
            async with asyncio.timeout(SILENCE_MOST) as silence:
                while True:
                    try:
                        guest = await self._connect(name)
                    except errors.EngineUnavailable:
                        silence.reschedule(loop.time() + SILENCE_MOST)
                    except errors.SandboxGone:
                        raise
                    except (errors.GuestLost, errors.EngineError) as error:
                        last = f" ({error.detail})"
                    else:
                        silence.reschedule(None)
                        if await self._answers(name):
                            guest.close()
                        else:
                            self._forget(name)
                            self._guests[name] = asyncio.create_task(_known(guest))
                        return
                    await asyncio.sleep(1)
        except TimeoutError:
            await self.lost(name, f"the program inside that serves the sandbox has not answered for {SILENCE_MOST:.0f} s{last}")
        except errors.SandboxError as error:
            await self.lost(name, error.detail)
        finally:
            self._suspects.discard(name)

    async def _answers(self, name: str) -> bool:
        """Whether the connection in use works after all: it was only slow, or is a new one. Commands run on it, or wait for it."""
        task = self._guests.get(name)
        if task is not None and not task.done():
            return True
        if task is None or task.cancelled() or task.exception() is not None:
            return False
        try:
            async with asyncio.timeout(PING_EVERY):
                await task.result().ping()
        except (TimeoutError, errors.GuestLost):
            return False
        return True

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(_report)


async def _known(guest: Guest) -> Guest:
    return guest


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("a background task failed", exc_info=error)
