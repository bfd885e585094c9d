"""The kubernetes engine under the contract suite, on the cluster of ``tests/cluster``, by an account that may do no more than it needs."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path

from harness.pods import IMAGE, Namespace, PodTraces

from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine
from sandboxes.engine.kubernetes.channels import STATUS
from sandboxes.engine.kubernetes.client import Cluster


class KubernetesTarget:
    engine = "kubernetes"
    workdir = "/mnt/data"
    volumes = True
    tenant_uid = guest_uid = 1000
    image, missing_image = IMAGE, "localhost/no-such-image:1"
    engine_program = """
import os
from pathlib import Path
from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine
def make():
    instance, namespace, guest, runtime, image, kubeconfig = (
        os.environ["TARGET_" + key] for key in ("INSTANCE", "NAMESPACE", "GUEST", "RUNTIME", "IMAGE", "KUBECONFIG")
    )
    config = KubernetesConfig(instance, namespace, Path(guest), {runtime: runtime}, image, kubeconfig=Path(kubeconfig))
    return KubernetesEngine(config)
"""

    def __init__(self, runtime: str, guest: Path, space: Namespace) -> None:
        self.runtime = runtime
        # gVisor makes a /dev/shm of its own, whatever is mounted there: only the memory bounds it.
        self.bounded = ("/tmp", "/run") if runtime == "gvisor" else ("/tmp", "/run", "/dev/shm")
        self.space = space
        self.traces = PodTraces(space)
        self._guest = guest
        self._instance, self._foreign = secrets.token_hex(6), secrets.token_hex(6)

    def config(self, instance: str = "") -> KubernetesConfig:
        return KubernetesConfig(
            instance or self._instance,
            self.space.name,
            self._guest,
            {self.runtime: self.runtime},
            self.image,
            schedule_wait=60,  # after a pause the kubelet may find its node unfit for a moment
            kubeconfig=self.space.kubeconfig,
        )

    def make(self) -> KubernetesEngine:
        return KubernetesEngine(self.config())

    def make_foreign(self) -> KubernetesEngine:
        return KubernetesEngine(self.config(self._foreign))

    async def kill(self, name: str) -> None:
        os.kill(await asyncio.to_thread(self.traces.init_pid, name), signal.SIGKILL)

    async def freeze(self, name: str) -> None:
        """In gVisor by what a tenant can do: a sentry that is stopped from outside is a broken node, which cannot end it either."""
        if self.runtime == "gvisor":
            await self.exec(name, "kill -STOP 1")
        else:
            os.kill(await asyncio.to_thread(self.traces.init_pid, name), signal.SIGSTOP)

    async def exec(self, name: str, script: str) -> None:
        """Run it beside the guest, to its end."""
        cluster = Cluster(self.config())
        await cluster.open()
        try:
            async for message in await cluster.exec(name, ["sh", "-c", script]):
                if message.data[:1] == bytes([STATUS]):
                    break
        finally:
            await cluster.close()

    async def leaks(self) -> list[str]:
        return await asyncio.to_thread(self.traces.of_sandboxes)

    async def clean(self) -> None:
        await asyncio.to_thread(self.traces.clean)

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "TARGET_INSTANCE": self._instance,
            "TARGET_NAMESPACE": self.space.name,
            "TARGET_GUEST": str(self._guest),
            "TARGET_RUNTIME": self.runtime,
            "TARGET_IMAGE": self.image,
            "TARGET_KUBECONFIG": str(self.space.kubeconfig),
        }
