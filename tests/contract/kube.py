"""The kubernetes engine under the contract suite, on the cluster of ``tests/cluster``, by an account that may do no more than it needs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import signal
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.api import Api
from cluster.faults import Node
from harness.waiting import until

from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine
from sandboxes.engine.kubernetes.selftest import NEEDED

IMAGE, IMAGE_WITH_GUEST = "localhost/sandboxhub-plain:1", "localhost/sandboxhub-test:1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Namespace:
    """A namespace of its own, with Pod Security "restricted" and an account for the engine."""

    def __init__(self, api: Api, kubeconfig: Path, name: str) -> None:
        self.api = api
        self.kubeconfig = kubeconfig  #: of the engine's account
        self.name = name
        self.path = f"/api/v1/namespaces/{name}"

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(f"{self.path}/pods")["items"]
        return found

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{self.path}/pods/{name}")
        return found

    def allow(self, needed: Mapping[str, tuple[str, ...]], account: str, directory: Path) -> Path:
        """Make an account that may do just ``needed``; its kubeconfig."""
        meta = {"metadata": {"name": account}}
        rules = [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in needed.items()]
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.name}
        self.api.create(f"{self.path}/serviceaccounts", meta)
        self.api.create(f"{_RBAC}/namespaces/{self.name}/roles", {**meta, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        self.api.create(f"{_RBAC}/namespaces/{self.name}/rolebindings", {**meta, "roleRef": role, "subjects": [subject]})
        secret = {"name": account, "annotations": {"kubernetes.io/service-account.name": account}}
        self.api.create(f"{self.path}/secrets", {"metadata": secret, "type": "kubernetes.io/service-account-token"})
        until(lambda: "token" in self.api.get(f"{self.path}/secrets/{account}").get("data", {}), seconds=60)
        token = base64.b64decode(self.api.get(f"{self.path}/secrets/{account}")["data"]["token"]).decode()
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        path = directory / f"{account}.kubeconfig"
        path.write_text(json.dumps(config))
        return path


@contextmanager
def namespace(kubeconfig: Path, directory: Path) -> Iterator[Namespace]:
    api = Api(kubeconfig)
    made = Namespace(api, kubeconfig, f"sandboxhub-{secrets.token_hex(4)}")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create("/api/v1/namespaces", {"metadata": {"name": made.name, "labels": labels}})
    try:
        until(lambda: _exists(api, f"{made.path}/serviceaccounts/default"), seconds=60)
        made.kubeconfig = made.allow(NEEDED, "engine", directory)
        yield made
    finally:
        api.delete(made.path)


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

    def __init__(self, runtime: str, guest: Path, space: Namespace, node: Node) -> None:
        self.runtime = runtime
        self.space = space
        self.node = node
        self._guest = guest
        self._instance, self._foreign = secrets.token_hex(6), secrets.token_hex(6)

    def config(self, instance: str) -> KubernetesConfig:
        return KubernetesConfig(
            instance, self.space.name, self._guest, {self.runtime: self.runtime}, self.image, kubeconfig=self.space.kubeconfig
        )

    def make(self) -> KubernetesEngine:
        return KubernetesEngine(self.config(self._instance))

    def make_foreign(self) -> KubernetesEngine:
        return KubernetesEngine(self.config(self._foreign))

    async def kill(self, name: str) -> None:
        await asyncio.to_thread(self._signal, name, signal.SIGKILL)

    async def freeze(self, name: str) -> None:
        await asyncio.to_thread(self._signal, name, signal.SIGSTOP)

    async def leaks(self) -> list[str]:
        return await asyncio.to_thread(self._leaks)

    async def clean(self) -> None:
        await asyncio.to_thread(self._clean)

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

    def _signal(self, name: str, number: int) -> None:
        """To what holds the sandbox: the sentry of gVisor, else the container's first process."""
        for pid in self.node.processes(self.space.pod(name)["metadata"]["uid"]):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            first = re.search(r"^NSpid:.*\b1$", status, re.MULTILINE) and b"guest" in command
            if b" boot " in command if self.runtime == "gvisor" else first:
                os.kill(pid, number)

    def _leaks(self) -> list[str]:
        """Pods, and processes of pods that the cluster knows no more."""
        mine = self._mine(self.space.pods())
        known = {pod["metadata"]["uid"] for pod in self.space.api.get("/api/v1/pods")["items"]}
        found = [f"pod {pod['metadata']['name']}" for pod in mine]
        for pid in self.node.processes("*"):
            try:
                cgroup = Path(f"/proc/{pid}/cgroup").read_text()
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            uid = re.search(r"/pod([0-9a-f-]{36})", cgroup)
            if uid and uid[1] not in known:
                found.append(f"process {pid} of pod {uid[1]}: {command!r}")
        return found

    def _mine(self, things: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [thing for thing in things if thing["metadata"]["labels"]["sandboxhub/instance"] in (self._instance, self._foreign)]

    def _clean(self) -> None:
        for kind in ("pods", "persistentvolumeclaims"):
            for thing in self._mine(self.space.api.get(f"{self.space.path}/{kind}")["items"]):
                self.space.api.delete(f"{self.space.path}/{kind}/{thing['metadata']['name']}")


def _exists(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True
