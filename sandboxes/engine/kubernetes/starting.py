"""Brings a pod up: to the guest's first word, or to the reason why there will be none."""

from __future__ import annotations

import asyncio

from sandboxes.engine.kubernetes import reasons
from sandboxes.engine.kubernetes.client import Refused
from sandboxes.engine.kubernetes.connections import Connections
from sandboxes.engine.kubernetes.reasons import Pod, name_of, uid_of
from sandboxes.engine.kubernetes.streams import ExecStream, NoGuest
from sandboxes.engine.kubernetes.watch import Pods
from sandboxes.errors import EngineError, EngineUnavailable

START_MOST = 120.0  #: seconds from the pod's creation to the guest's first word, beside the wait for a node
#: The first exec works about half a second before the cluster says that the pod is ready: so it is tried early, and often at first.
_FIRST_TRY = 0.15  #: seconds after the pod got its node
_TRY_EVERY = 0.05
_OFTEN_FOR = 3.0  #: seconds; then the image is being pulled, and a change of the pod tells when it is worth a try
_TRY_SELDOM = 1.0
_FAILURES_MOST = 8  #: tries that failed otherwise than by being too early


class Starting:
    def __init__(self, pods: Pods, connections: Connections, schedule_wait: float) -> None:
        self._pods = pods
        self._connections = connections
        self._schedule_wait = schedule_wait

    async def bring_up(self, pod: Pod) -> ExecStream:
        """The first connection to the guest of ``pod``, which ``Pods`` knows. Raises ``EngineError``, its detail the reason as a clause."""
        obstacle = asyncio.create_task(self._until_hopeless(name_of(pod), uid_of(pod)))
        reached = asyncio.create_task(self._reach(name_of(pod)))
        stream: ExecStream | None = None
        most = START_MOST + self._schedule_wait
        try:
            async with asyncio.timeout(most):
                await asyncio.wait([obstacle, reached], return_when=asyncio.FIRST_COMPLETED)
            if not reached.done():
                raise EngineError(f"{obstacle.result()}.")
            stream = reached.result()
            return stream
        except TimeoutError:
            known = self._pods.get(name_of(pod))
            hindrance = reasons.obstacle(known, self._schedule_wait) if known is not None else None
            raise EngineError(f"it did not come up within {most:.0f} s{f': {hindrance.text}' if hindrance else ''}.") from None
        finally:
            for task in (obstacle, reached):
                task.cancel()
            await asyncio.gather(obstacle, reached, return_exceptions=True)
            if stream is None and not reached.cancelled() and reached.exception() is None:
                reached.result().close()

    async def _until_hopeless(self, name: str, uid: str) -> str:
        """Why the pod will not come up, as soon as that is certain."""
        loop = asyncio.get_running_loop()
        grace, since = 0.0, 0.0
        with self._pods.follow(name) as change:
            while True:
                change.clear()
                pod = self._pods.get(name)
                if pod is None or uid_of(pod) != uid:
                    return "somebody deleted its pod"
                if (reason := reasons.death(pod)) is not None:
                    return reason
                hindrance = reasons.obstacle(pod, self._schedule_wait)
                left: float | None = None
                if hindrance is not None:
                    if hindrance.grace != grace:
                        grace, since = hindrance.grace, loop.time()
                    left = since + grace - loop.time()
                    if left <= 0:
                        return hindrance.text
                else:
                    grace = 0.0
                await _until_set(change, left)

    async def _reach(self, name: str) -> ExecStream:
        """Try to connect until it works."""
        loop = asyncio.get_running_loop()
        with self._pods.follow(name) as change:
            await self._pods.until(name, reasons.is_placed)
            placed = loop.time()
            failures = 0
            await asyncio.sleep(_FIRST_TRY)
            while True:
                change.clear()
                pause = _TRY_EVERY if loop.time() - placed < _OFTEN_FOR else _TRY_SELDOM
                try:
                    return await self._connections.make(name)
                except NoGuest as failure:
                    if not failure.not_up_yet:
                        failures += 1
                        pause = 0.2 * failures
                    detail = failure.detail
                except Refused as refused:  # it has no node yet in the server's own view, or it is gone: the other task will tell
                    if refused.status == 403:
                        raise EngineError("the engine's account may not exec into pods.") from refused
                    failures += 1
                    detail = refused.message
                except EngineUnavailable as away:  # the API server or a kubelet, and back in a moment: it costs time only
                    pause = _TRY_SELDOM
                    detail = away.detail
                except EngineError as error:
                    failures += 1
                    pause = _TRY_SELDOM
                    detail = error.detail
                if failures > _FAILURES_MOST:
                    raise EngineError(f"its guest cannot be reached: {detail.rstrip('.')}.")
                await _until_set(change, pause)


async def _until_set(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for ``event``, ``seconds`` at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
