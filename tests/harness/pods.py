"""A namespace of the test cluster for one deployment, and what its sandboxes leave in it: found without the product's help."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster.api import Api
from cluster.faults import Node

from harness.waiting import until
from sandboxes.engine.kubernetes.selftest import NEEDED

IMAGE, IMAGE_WITH_GUEST = "localhost/sandboxhub-plain:1", "localhost/sandboxhub-test:1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Namespace:
    """A namespace of its own, with Pod Security "restricted" and an account for the engine, which may do just what it needs."""

    def __init__(self, api: Api, admin: Path, name: str) -> None:
        self.api = api
        self.admin = admin
        self.kubeconfig = admin  #: of the engine's account, once there is one
        self.name = name
        self.path = f"/api/v1/namespaces/{name}"

    def list(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(f"{self.path}/{kind}")["items"]
        return found

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{self.path}/pods/{name}")
        return found

    def exists(self, what: str) -> bool:
        return self.api.exists(f"{self.path}/{what}")

    def grant(self, needed: Mapping[str, tuple[str, ...]], account: str) -> None:
        """Give the Role of ``account`` these rules in the place of those that it has."""
        roles = f"{_RBAC}/namespaces/{self.name}/roles"
        rules = [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in needed.items()]
        if self.api.exists(f"{roles}/{account}"):
            self.api.delete(f"{roles}/{account}")
        self.api.create(roles, {"metadata": {"name": account}, "rules": rules})

    def may(self, account: str, verb: str, resource: str) -> bool:
        """Whether ``account`` may; ``resource`` such as ``pods/exec``."""
        kind, _, part = resource.partition("/")
        attributes = {"namespace": self.name, "verb": verb, "resource": kind, "subresource": part}
        body = {"spec": {"user": f"system:serviceaccount:{self.name}:{account}", "resourceAttributes": attributes}}
        return bool(self.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])

    def allow(self, needed: Mapping[str, tuple[str, ...]], account: str, directory: Path) -> Path:
        """Make an account that may do just ``needed``; its kubeconfig."""
        meta = {"metadata": {"name": account}}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.name}
        self.api.create(f"{self.path}/serviceaccounts", meta)
        self.grant(needed, account)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        self.api.create(f"{_RBAC}/namespaces/{self.name}/rolebindings", {**meta, "roleRef": role, "subjects": [subject]})
        secret = {"name": account, "annotations": {"kubernetes.io/service-account.name": account}}
        self.api.create(f"{self.path}/secrets", {"metadata": secret, "type": "kubernetes.io/service-account-token"})
        until(lambda: "token" in self.api.get(f"{self.path}/secrets/{account}").get("data", {}))
        token = base64.b64decode(self.api.get(f"{self.path}/secrets/{account}")["data"]["token"]).decode()
        config = json.loads(self.admin.read_text())
        config["users"][0]["user"] = {"token": token}
        path = directory / f"{account}.kubeconfig"
        path.write_text(json.dumps(config))
        return path


@contextmanager
def namespace(admin: Path, directory: Path) -> Iterator[Namespace]:
    """``admin``: the kubeconfig of the cluster's admin; ``directory`` is for the account's."""
    api = Api(admin)
    made = Namespace(api, admin, f"sandboxhub-{secrets.token_hex(4)}")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create("/api/v1/namespaces", {"metadata": {"name": made.name, "labels": labels}})
    try:
        until(lambda: made.exists("serviceaccounts/default"))
        made.kubeconfig = made.allow(NEEDED, "engine", directory)
        yield made
    finally:
        api.delete(made.path)


class PodTraces:
    """What sandboxes of one deployment leave in its namespace, and on the node where that is one of ``script/cluster``."""

    def __init__(self, space: Namespace) -> None:
        self.space = space
        self._node = Node.of(space.admin)

    @property
    def node(self) -> Node:
        """Skips the test that wants to look at another cluster's."""
        if self._node is None:
            pytest.skip("the processes of this cluster's nodes are not on this machine")
        return self._node

    def of_sandboxes(self) -> list[str]:
        """Pods, and processes of pods that the cluster knows no more. Claims do not count."""
        found = [f"pod {pod['metadata']['name']}" for pod in self.space.list("pods")]
        if self._node is None:
            return found
        known = self._uids()
        owners = {pid: uid for pid in self.node.processes("*") if (uid := _pod_of(pid))}
        known |= self._uids()  # other tests start and end pods meanwhile
        return found + [f"process {pid} of pod {uid}: {_command(pid)!r}" for pid, uid in owners.items() if uid not in known]

    def _uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.space.api.get("/api/v1/pods")["items"]}

    def of_processes(self) -> list[str]:
        return []  # nothing but the server itself works outside of the pods

    def processes(self) -> dict[int, str]:
        return {pid: _command(pid).decode(errors="replace") for pid in self.node.processes("*")}

    def of_volume(self, name: str) -> bool:
        return self.space.exists(f"persistentvolumeclaims/{name}")

    def init_pid(self, container: str) -> int:
        """What holds a sandbox, seen from the host: the sentry of gVisor, else the container's first process."""
        pod = self.space.pod(container)
        gvisor = pod["spec"].get("runtimeClassName") == "gvisor"
        for pid in self.node.processes(pod["metadata"]["uid"]):
            command = _command(pid)
            if (b" boot " in command) if gvisor else (b"guest init" in command and _is_first(pid)):
                return pid
        raise ProcessLookupError(container)

    def clean(self) -> None:
        """Take away what a failed test left, so that it harms nobody else."""
        for kind in ("pods", "persistentvolumeclaims"):
            for thing in self.space.list(kind):
                if thing["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "sandboxhub":
                    self.space.api.delete(f"{self.space.path}/{kind}/{thing['metadata']['name']}")


def _pod_of(pid: int) -> str:
    """The uid of the pod that a process belongs to; empty when it has ended."""
    try:
        found = re.search(r"/pod([0-9a-f-]{36})", Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def _is_first(pid: int) -> bool:
    """Process 1 of its own namespace."""
    try:
        return re.search(r"^NSpid:.*\s1$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE) is not None
    except OSError:
        return False
