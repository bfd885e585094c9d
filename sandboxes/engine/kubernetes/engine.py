"""The engine: what ``sandboxes.engine.base.Engine`` promises, by a pod for each sandbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from sandboxes.engine.base import SANDBOX_NAME, ByteStream, Health, Running, Runtime, Spec
from sandboxes.engine.kubernetes import egress, manifests, reasons, selftest
from sandboxes.engine.kubernetes.client import Cluster, Json, Refused
from sandboxes.engine.kubernetes.config import IMAGE_REFERENCE, LABEL_INSTANCE, LABEL_RUNTIME, VOLUME_NAME, KubernetesConfig
from sandboxes.engine.kubernetes.connections import Connections
from sandboxes.engine.kubernetes.locks import Locks
from sandboxes.engine.kubernetes.reasons import Pod
from sandboxes.engine.kubernetes.starting import Starting
from sandboxes.engine.kubernetes.streams import NoGuest
from sandboxes.engine.kubernetes.volumes import Volumes
from sandboxes.engine.kubernetes.watch import Pods
from sandboxes.engine.tasks import Muted, Starts, finish
from sandboxes.errors import EngineError, EngineUnavailable, SandboxError, SandboxGone, StartFailed

_log = logging.getLogger(__name__)

T = TypeVar("T")

_END_TIMEOUT = 60.0  #: seconds until an end that the node has not confirmed counts as failed; it is tried again
#: The same after a failed start, which its caller waits for, and a server that stops: a kubelet that pulls an image ends nothing meanwhile.
_CLEAN_UP_TIMEOUT = 20.0
_LOOK_EVERY = 5.0  #: seconds between two looks for a pod that is on its way out, should the watch be interrupted


class KubernetesEngine:
    """Several engines of one deployment may work at once, in many processes: the cluster tells them apart what is there."""

    name = "kubernetes"

    def __init__(self, config: KubernetesConfig) -> None:
        self._config = config
        self._cluster = Cluster(config)
        self._pods = Pods(self._cluster, f"{LABEL_INSTANCE}={config.instance}", self._died)
        self._connections = Connections(self._cluster, config.guest)
        self._volumes = Volumes(self._cluster, config)
        self._starting = Starting(self._pods, self._connections, config.schedule_wait)
        self._proven: dict[str, Runtime] = {}
        self._ready: set[str] = set()  # uids of pods that a start has proven
        self._starts = Starts()
        self._locks = Locks()
        self._muted = Muted()
        self._tell: Callable[[str, str], None] | None = None

    @property
    def runtimes(self) -> Mapping[str, Runtime]:
        return self._proven

    def images(self) -> tuple[str, ...]:
        return (self._config.image,)

    @property
    def any_image(self) -> bool:
        return True

    async def open(self) -> None:
        self._connections.load()
        await self._cluster.open()
        self._proven = await selftest.prove(self._cluster, self._config)
        await _asked(self._pods.open())

    async def close(self) -> None:
        await self._starts.close()
        await self._pods.close()
        await self._connections.close()
        await self._cluster.close()

    async def audit(self) -> tuple[str, ...]:
        runtime = next(iter(self._proven))
        return await _asked(egress.probe(self._cluster, self._pods, self._starting, self._config, runtime, self._remove))

    def watch(self, died: Callable[[str, str], None]) -> None:
        self._tell = died

    # Life

    async def start(self, spec: Spec) -> Running:
        self._check(spec)
        async with self._starts.one(spec.name):
            return await self._start(spec)

    async def end(self, name: str) -> None:
        _check_name(name)
        self._starts.stop(name)
        with self._muted.hold(name):
            async with self._locks.hold(name):
                await _asked(self._remove(name))

    async def observe(self) -> Mapping[str, Health]:
        """Asks the cluster itself: a watch that lags must not make a sandbox look gone."""
        found, _ = await _asked(self._cluster.list("pods", f"{LABEL_INSTANCE}={self._config.instance}"))
        named = {reasons.name_of(pod): pod for pod in found}
        return {name: _health(pod) for name, pod in named.items() if SANDBOX_NAME.fullmatch(name)}

    async def connect(self, name: str) -> ByteStream:
        if not SANDBOX_NAME.fullmatch(name):
            raise SandboxGone("That is not the name of a sandbox.")
        if kept := self._connections.take(name):
            return kept
        _check_lives(self._pods.get(name) or await _asked(self._find(name)))
        try:
            return await self._connections.make(name)
        except (NoGuest, Refused, EngineError) as failure:
            if isinstance(failure, EngineUnavailable):
                raise
            _check_lives(await _asked(self._find(name)))
            why = failure.message if isinstance(failure, Refused) else failure.detail
            raise EngineError(f"The sandbox cannot be reached: {why.rstrip('.')}.") from failure

    # Volumes

    async def ensure_volume(self, name: str, size: int) -> None:
        await _asked(self._volumes.ensure(name, size))

    async def delete_volume(self, name: str) -> None:
        await _asked(self._volumes.delete(name))

    async def list_volumes(self) -> Mapping[str, int]:
        return await _asked(self._volumes.sizes())

    # How it starts

    def _check(self, spec: Spec) -> None:
        if not SANDBOX_NAME.fullmatch(spec.name):
            raise StartFailed("That is not the name of a sandbox.")
        if spec.runtime not in self._proven:
            raise StartFailed(f"This cluster has no runtime {spec.runtime}.")
        if not IMAGE_REFERENCE.fullmatch(spec.image):
            raise StartFailed("That is not the reference of an image.")
        if spec.volume is not None and not VOLUME_NAME.fullmatch(spec.volume):
            raise StartFailed("That is not the name of a volume.")

    async def _start(self, spec: Spec) -> Running:
        async with self._locks.hold(spec.name):
            found = await _asked(self._find(spec.name))
            if found is not None and reasons.uid_of(found) in self._ready and reasons.death(found) is None:
                return _running(found)
            with self._muted.hold(spec.name):
                try:
                    pod = await self._launch(spec, found)
                except BaseException as error:
                    await self._clean_up(spec.name)
                    if isinstance(error, SandboxError):
                        raise StartFailed(f"The sandbox could not be started: {error.detail}") from error
                    raise
            if (now := self._pods.get(spec.name)) is None or (reason := reasons.death(now)) is not None:
                # It died while its death was no news.
                await self._clean_up(spec.name)
                raise StartFailed(f"The sandbox ended as it started: {reason if now else 'somebody deleted its pod'}.")
            self._ready.add(reasons.uid_of(pod))
        return _running(pod)

    async def _launch(self, spec: Spec, found: Json | None) -> Json:
        """Bring up a new pod, or the one that a process which is no more left half-way up."""
        if found is not None and reasons.death(found) is not None:
            await _asked(self._remove(spec.name))
            found = None
        if found is None:
            found = await self._create(spec)
        if spec.volume is not None:
            holder = next(iter(await _asked(self._volumes.holders(spec.volume))), found)
            if reasons.uid_of(holder) != reasons.uid_of(found):
                raise EngineError(f"another sandbox holds the volume {spec.volume}.")
        self._pods.note(found)
        stream = await self._starting.bring_up(found)
        self._connections.keep(spec.name, stream)
        return found

    async def _create(self, spec: Spec) -> Json:
        try:
            return await self._cluster.create("pods", manifests.pod(spec, self._config))
        except Refused as refused:
            if refused.reason == "AlreadyExists":  # a retried request whose first answer was lost, or another process
                found = await _asked(self._find(spec.name))
                if found is not None and reasons.death(found) is None:
                    return found
            raise EngineError(reasons.refusal(refused.message)) from refused

    async def _clean_up(self, name: str) -> None:
        """After a failed start. What cannot be removed now is found by ``observe``; why it did not start matters more."""
        self._connections.drop(name)
        try:
            await finish(_asked(self._remove(name, _CLEAN_UP_TIMEOUT)))
        except SandboxError as left:
            _log.warning("after a failed start of %s: %s", name, left.detail)

    # How it ends

    async def _remove(self, name: str, timeout: float | None = None) -> None:
        """Delete the pod and wait until its node confirms that its processes are gone. The caller holds its lock."""
        self._connections.drop(name)
        found = await self._find(name)
        if found is None:
            return
        uid = reasons.uid_of(found)
        self._pods.expect_end(uid)
        await self._cluster.delete("pods", name, uid)
        try:
            async with asyncio.timeout(_END_TIMEOUT if timeout is None else timeout):
                with self._pods.follow(name) as change:
                    while not await self._is_gone(name, uid, change):
                        pass
        except TimeoutError:
            node = found["spec"].get("nodeName")
            raise EngineError(f"The sandbox is not gone: its node{f' {node}' if node else ''} has not confirmed that it ended.") from None
        self._ready.discard(uid)

    async def _is_gone(self, name: str, uid: str, change: asyncio.Event) -> bool:
        """After the next change that the watch tells of, or a look."""
        known = self._pods.get(name)
        if known is None or reasons.uid_of(known) != uid:
            found = await self._find(name)
            if found is None or reasons.uid_of(found) != uid:
                return True
        try:
            async with asyncio.timeout(_LOOK_EVERY):
                await change.wait()
                change.clear()
                return False
        except TimeoutError:
            found = await self._find(name)
            return found is None or reasons.uid_of(found) != uid

    async def _find(self, name: str) -> Json | None:
        """The pod, when it is this deployment's."""
        pod = await self._cluster.get("pods", name)
        return pod if pod is not None and reasons.instance_of(pod) == self._config.instance else None

    def _died(self, pod: Pod, reason: str) -> None:
        """The watch saw it."""
        name = reasons.name_of(pod)
        if name in self._muted or not SANDBOX_NAME.fullmatch(name):
            return
        _log.warning("sandbox %s died: %s", name, reason)
        self._connections.drop(name)
        self._ready.discard(reasons.uid_of(pod))
        if self._tell is not None:
            self._tell(name, reason)


async def _asked(work: Coroutine[Any, Any, T]) -> T:
    """What the cluster refuses without our knowing why leaves as an ``EngineError``."""
    try:
        return await work
    except Refused as refused:
        raise EngineError(f"The cluster refused: {refused.message}") from refused


def _check_name(name: str) -> None:
    if not SANDBOX_NAME.fullmatch(name):
        raise EngineError("That is not the name of a sandbox.")


def _check_lives(pod: Pod | None) -> None:
    if pod is None:
        raise SandboxGone("There is no such sandbox.")
    if (reason := reasons.death(pod)) is not None:
        raise SandboxGone(f"The sandbox ended: {reason}.")


def _health(pod: Pod) -> Health:
    return Health.RUNNING if reasons.death(pod) is None else Health.DEAD


def _running(pod: Pod) -> Running:
    return Running(pod["metadata"]["labels"][LABEL_RUNTIME], pod["spec"]["containers"][0]["image"])
