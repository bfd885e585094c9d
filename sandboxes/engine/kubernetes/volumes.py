"""Volumes: one PersistentVolumeClaim each. They outlive the pods, and end by ``delete``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sandboxes.engine.kubernetes import manifests, reasons
from sandboxes.engine.kubernetes.client import Cluster, Json, Refused
from sandboxes.engine.kubernetes.config import ANNOTATION_SIZE, LABEL_INSTANCE, LABEL_VOLUME, VOLUME_NAME, KubernetesConfig
from sandboxes.errors import EngineError

_CLAIMS = "persistentvolumeclaims"
_GONE_TIMEOUT = 30.0  #: seconds until a claim that nothing holds must be gone
_POLL = 0.1  #: seconds; the first looks come sooner than a watch could be set up


class Volumes:
    """Methods raise ``EngineError`` or ``Refused``."""

    def __init__(self, cluster: Cluster, config: KubernetesConfig) -> None:
        self._cluster = cluster
        self._config = config

    async def ensure(self, name: str, size: int) -> None:
        _check(name)
        try:
            await self._cluster.create(_CLAIMS, manifests.claim(name, size, self._config))
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise
            found = await self._cluster.get(_CLAIMS, name)
            if found is not None and not self._is_ours(found):
                raise EngineError(f"The volume {name} belongs to another deployment.") from None
            if found is None or "deletionTimestamp" in found["metadata"]:
                raise EngineError(f"The volume {name} is being deleted.") from None

    async def delete(self, name: str) -> None:
        """Returns when it is gone."""
        _check(name)
        found = await self._cluster.get(_CLAIMS, name)
        if found is None or not self._is_ours(found):
            return
        if holders := await self.holders(name):
            raise EngineError(f"The sandbox {reasons.name_of(holders[0])} holds the volume {name}.")
        await self._cluster.delete(_CLAIMS, name, reasons.uid_of(found))
        try:
            async with asyncio.timeout(_GONE_TIMEOUT):
                while (left := await self._cluster.get(_CLAIMS, name)) is not None and reasons.uid_of(left) == reasons.uid_of(found):
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise EngineError(f"The volume {name} is not gone: something still holds its claim.") from None

    async def sizes(self) -> Mapping[str, int]:
        found, _ = await self._cluster.list(_CLAIMS, f"{LABEL_INSTANCE}={self._config.instance}")
        return {reasons.name_of(claim): _size(claim) for claim in found}

    async def holders(self, name: str) -> list[Json]:
        """The pods that mount it, those on their way out included; the one that holds it first."""
        found, _ = await self._cluster.list("pods", f"{LABEL_INSTANCE}={self._config.instance},{LABEL_VOLUME}={name}")
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], reasons.name_of(pod)))

    def _is_ours(self, claim: Json) -> bool:
        return reasons.instance_of(claim) == self._config.instance


def _check(name: str) -> None:
    if not VOLUME_NAME.fullmatch(name):
        raise EngineError("That is not the name of a volume.")


def _size(claim: Json) -> int:
    asked = claim["metadata"].get("annotations", {}).get(ANNOTATION_SIZE, "")
    return int(asked) if asked.isdigit() else reasons.quantity(claim["spec"]["resources"]["requests"]["storage"])
