"""The kubernetes engine and its baseline, in a namespace of their own: in the cluster of KUBECONFIG, or one of ``script/cluster``."""

from __future__ import annotations

import dataclasses
import os
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.bare import WORKDIR, BareFailed
from bench.pods import ApiServer, Pods
from bench.server import ROOT
from bench.sides import Bench, Direct
from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine, manifests
from sandboxes.engine.kubernetes.config import RUNTIME_CLASSES

_IMAGE = "localhost/sandboxhub-test:1"  # of script/cluster; it brings the guest along, as our own images do
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@asynccontextmanager
async def kubernetes(runtimes: list[str], limits: Limits, guest: Path) -> AsyncIterator[Bench]:
    """Ends the cluster if it was not up before."""
    async with _cluster() as kubeconfig, _namespace(kubeconfig) as (api_server, namespace):
        image = os.environ.get("SANDBOXHUB_IMAGE") or _IMAGE
        classes = {name: RUNTIME_CLASSES[name] for name in runtimes}
        config = KubernetesConfig(secrets.token_hex(6), namespace, guest, classes, image, kubeconfig=kubeconfig)
        direct = Direct(KubernetesEngine(config), image, limits)

        def baseline(runtime: str, name: str) -> Pods:
            return Pods(api_server, namespace, lambda name: _manifest(name, runtime, config, limits))

        environment = {
            "KUBECONFIG": str(kubeconfig),
            "SANDBOXHUB_NAMESPACE": namespace,
            "SANDBOXHUB_IMAGE": image,
            "SANDBOXHUB_EGRESS_PROBE": "off",
        }
        yield Bench("kubernetes", environment, direct, baseline)


def _manifest(name: str, runtime: str, config: KubernetesConfig, limits: Limits) -> dict[str, Any]:
    """A sandbox's pod, but another's, and with ``sleep infinity`` as first process."""
    pod = manifests.pod(Spec(name, runtime, config.image, WORKDIR, limits=limits), dataclasses.replace(config, instance="0" * 12))
    (container,) = pod["spec"]["containers"]
    container["command"] = ["sleep", "infinity"]
    return pod


@asynccontextmanager
async def _cluster() -> AsyncIterator[Path]:
    """The kubeconfig of an admin."""
    if given := os.environ.get("KUBECONFIG"):
        yield Path(given)
        return
    was_up = _script("status").returncode == 0
    up = _script("up")
    if up.returncode != 0:
        raise BareFailed(f"script/cluster up failed:\n{up.stderr[-4000:]}")
    try:
        yield Path(up.stdout.splitlines()[-1].removeprefix("KUBECONFIG="))
    finally:
        if not was_up:
            _script("down")


def _script(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "script" / "cluster", command], stdin=subprocess.DEVNULL, capture_output=True, text=True)


@asynccontextmanager
async def _namespace(kubeconfig: Path) -> AsyncIterator[tuple[ApiServer, str]]:
    """With all that is in it, it is deleted afterwards."""
    server, name = ApiServer(kubeconfig), f"sandboxhub-bench-{secrets.token_hex(4)}"
    await server.open()
    try:
        await server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": _RESTRICTED}})
        try:
            path = f"/api/v1/namespaces/{name}/serviceaccounts"
            async for _ in server.watch(path, {}):  # without one it takes no pods
                break
            yield server, name
        finally:
            await server.call("DELETE", f"/api/v1/namespaces/{name}")
    finally:
        await server.close()
