"""Pods as Pod Security "restricted" wants them, and plain exec into them: a look at a cluster without any engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp  # noqa: TID251 - there is no engine here
from harness.waiting import until

from .api import Api

IMAGE = "localhost/sandboxhub-test:1"


def restricted_pod(name: str, runtime: str, claim: str | None = None) -> dict[str, Any]:
    """A pod that sleeps; ``claim`` is mounted at /work."""
    work: dict[str, Any] = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    container = {
        "name": "sandbox",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", 'trap "exit 0" TERM; sleep 3600 & wait'],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "runtimeClassName": runtime,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "work", **work}],
        },
    }


class Namespace:
    """A namespace with Pod Security "restricted" enforced."""

    def __init__(self, kubeconfig: Path, name: str) -> None:
        self.api = Api(kubeconfig)
        self.path = f"/api/v1/namespaces/{name}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        until(lambda: self.api.exists(f"{self.path}/serviceaccounts/default"))

    def start(self, pod: dict[str, Any]) -> dict[str, Any]:
        """The pod when it is Ready."""
        self.api.create(f"{self.path}/pods", pod)
        path = f"{self.path}/pods/{pod['metadata']['name']}"

        def ready() -> Any:
            found = self.api.get(path)
            conditions = {condition["type"]: condition["status"] for condition in found["status"].get("conditions", ())}
            return found if conditions.get("Ready") == "True" else None

        return until(ready)

    def delete(self, path: str) -> None:
        """Delete an object of this namespace, and wait until it is gone."""
        self.api.delete(f"{self.path}/{path}")
        until(lambda: not self.api.exists(f"{self.path}/{path}"))

    def exec(self, pod: str, *argv: str) -> tuple[str, dict[str, Any]]:
        """What the command printed, and the status that ended it."""
        return execute(self.api, f"{self.path}/pods/{pod}", *argv)


def execute(api: Api, pod: str, *argv: str) -> tuple[str, dict[str, Any]]:
    """Run a command in the pod with the path ``pod``: what it printed, and the status that ended it."""
    return asyncio.run(_execute(api, pod, argv))


async def _execute(api: Api, pod: str, argv: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    query = [*(("command", word) for word in argv), ("stdout", "true"), ("stderr", "true")]
    output, status = bytearray(), {}
    async with (
        asyncio.timeout(120),
        aiohttp.ClientSession(headers=api.headers) as session,
        session.ws_connect(f"{api.server}{pod}/exec", params=query, ssl=api.tls, protocols=["v5.channel.k8s.io"]) as stream,
    ):
        async for message in stream:
            channel, data = message.data[0], message.data[1:]
            if channel == 3:
                status = json.loads(data)
            else:
                output += data
    return output.decode(), status
