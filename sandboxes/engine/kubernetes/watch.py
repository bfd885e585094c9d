"""Every pod of the deployment, kept up to date by one watch, and told of when it dies.

Nothing polls. The list is taken anew after every interruption and every few minutes, so that what a watch missed is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator

from sandboxes.engine.kubernetes import reasons
from sandboxes.engine.kubernetes.client import Cluster, Json, Refused
from sandboxes.engine.kubernetes.reasons import Pod, name_of, uid_of
from sandboxes.errors import EngineError

_log = logging.getLogger(__name__)
_PAUSE_MOST = 5.0  #: seconds between two attempts to list


class Pods:
    """What a ``selector`` finds. ``died(pod, reason)`` is called once for each pod that was seen alive and is not any more."""

    def __init__(self, cluster: Cluster, selector: str, died: Callable[[Pod, str], None]) -> None:
        self._cluster = cluster
        self._selector = selector
        self._died = died
        self._pods: dict[str, Pod] = {}
        self._dead: set[str] = set()  # uids
        self._changes: dict[str, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Returns with all pods known. Raises ``Refused`` or ``EngineError``."""
        version = await self._list()
        self._task = asyncio.create_task(self._run(version))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def get(self, name: str) -> Pod | None:
        return self._pods.get(name)

    def note(self, pod: Pod) -> None:
        """A pod that was just made: the watch may tell of it later."""
        if name_of(pod) not in self._pods:
            self._seen(pod)

    def expect_end(self, uid: str) -> None:
        """The pod is about to be deleted: its end is no news. It must be there still."""
        self._dead.add(uid)

    @contextlib.contextmanager
    def follow(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set at every change of the pod ``name``; to be cleared before looking."""
        event = asyncio.Event()
        self._changes.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            self._changes[name].discard(event)
            if not self._changes[name]:
                del self._changes[name]

    async def until(self, name: str, holds: Callable[[Pod], object]) -> Pod:
        """The pod ``name``, as soon as ``holds`` is true of it."""
        with self.follow(name) as change:
            while (pod := self.get(name)) is None or not holds(pod):
                await change.wait()
                change.clear()
            return pod

    async def _run(self, version: str) -> None:
        while True:
            try:
                async for event in self._cluster.watch("pods", self._selector, version):
                    if event["type"] == "ERROR":  # what happened since is not known any more
                        break
                    if event["type"] != "BOOKMARK":
                        self._take(event)
            except (Refused, EngineError) as error:
                _log.info("the watch on pods was interrupted: %s", error)
            version = await self._list_at_last()

    async def _list_at_last(self) -> str:
        pause = 0.1
        while True:
            try:
                return await self._list()
            except (Refused, EngineError) as error:
                _log.warning("pods cannot be listed: %s", error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
            pause = min(pause * 2, _PAUSE_MOST)

    async def _list(self) -> str:
        before = list(self._pods.values())  # what is noted while the answer is on its way is not in it
        found, version = await self._cluster.list("pods", self._selector)
        uids = {uid_of(pod) for pod in found}
        for pod in before:
            if uid_of(pod) not in uids:
                self._gone(pod)
        for pod in found:
            self._seen(pod)
        return version

    def _take(self, event: Json) -> None:
        pod = event["object"]
        if event["type"] == "DELETED":
            self._gone(pod)
        else:
            self._seen(pod)

    def _seen(self, pod: Pod) -> None:
        known = self._pods.get(name_of(pod))
        self._pods[name_of(pod)] = pod
        reason = reasons.death(pod)
        if reason is not None and uid_of(pod) not in self._dead:
            self._dead.add(uid_of(pod))
            if known is not None and uid_of(known) == uid_of(pod):  # found dead at first sight, it is no news
                self._died(pod, reason)
        self._tell(name_of(pod))

    def _gone(self, pod: Pod) -> None:
        known = self._pods.pop(name_of(pod), None)
        if known is not None and uid_of(known) != uid_of(pod):  # a later pod has the name
            self._pods[name_of(pod)] = known
            return
        if uid_of(pod) in self._dead:
            self._dead.discard(uid_of(pod))
        elif known is not None:
            self._died(pod, reasons.death(pod) or "somebody deleted its pod")
        self._tell(name_of(pod))

    def _tell(self, name: str) -> None:
        for event in self._changes.get(name, ()):
            event.set()
