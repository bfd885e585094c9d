"""The proof that a cluster lets this engine work, without starting anything: a full cluster must not look like a broken one."""

from __future__ import annotations

import asyncio
import logging
import secrets

from sandboxes.engine.base import Limits, Runtime, Spec
from sandboxes.engine.kubernetes import manifests
from sandboxes.engine.kubernetes.client import Cluster, Refused
from sandboxes.engine.kubernetes.config import KubernetesConfig
from sandboxes.errors import EngineError

_log = logging.getLogger(__name__)

#: What deploy/ grants. Servers of before 1.35 ask for ``get`` on an exec over a WebSocket, later ones for ``create`` too.
NEEDED = {
    "pods": ("create", "get", "list", "watch", "delete"),
    "pods/exec": ("create", "get"),
    "persistentvolumeclaims": ("create", "get", "list", "delete"),
}


async def prove(cluster: Cluster, config: KubernetesConfig) -> dict[str, Runtime]:
    """The configured runtimes that the cluster has. Raises ``EngineError``: what is missing, and what to do."""
    try:
        version = await cluster.version()
        await _check_rights(cluster, config)
        found = await asyncio.gather(*(_has(cluster, config, runtime) for runtime in config.runtimes))
    except Refused as refused:
        raise EngineError(f"The cluster refused the engine's self-test: {refused.message}") from refused
    missing = [runtime for runtime, there in zip(config.runtimes, found, strict=True) if not there]
    if len(missing) == len(config.runtimes):
        classes = ", ".join(config.runtimes.values())
        raise EngineError(f"The cluster has no RuntimeClass {classes}: make it, or name the right one in SANDBOXHUB_RUNTIME_CLASSES.")
    for runtime in missing:
        _log.warning("the cluster has no RuntimeClass %s: the runtime %s is not on offer", config.runtimes[runtime], runtime)
    return {
        runtime: Runtime(runtime, f"Kubernetes {version}", () if runtime == "gvisor" else ("pids",))
        for runtime in config.runtimes
        if runtime not in missing
    }


async def _check_rights(cluster: Cluster, config: KubernetesConfig) -> None:
    wanted = [(verb, resource) for resource, verbs in NEEDED.items() for verb in verbs]
    granted = await asyncio.gather(*(cluster.may(verb, resource) for verb, resource in wanted))
    refused = [f"{verb} {resource}" for (verb, resource), allowed in zip(wanted, granted, strict=True) if not allowed]
    if refused:
        raise EngineError(
            f"The engine's account may not {', '.join(refused)} in namespace {config.namespace}: give it the Role of deploy/, "
            "and see that the namespace is the right one."
        )


async def _has(cluster: Cluster, config: KubernetesConfig, runtime: str) -> bool:
    """Whether the cluster would admit a pod of ``runtime``."""
    name = f"t-{secrets.token_hex(12)}-0000"
    pod = manifests.pod(Spec(name, runtime, config.image, "/work", limits=Limits(memory=64 << 20, cpus=0.1, disk=16 << 20)), config)
    try:
        await cluster.create("pods", pod, dry_run=True)
    except Refused as refused:
        if "exceeded quota" in refused.message:  # it is the last that is asked, and changes from minute to minute
            return True
        if "RuntimeClass" in refused.message and "not found" in refused.message:
            return False
        if refused.status == 404:
            raise EngineError(f"There is no namespace {config.namespace}: make it, or set SANDBOXHUB_NAMESPACE.") from refused
        raise EngineError(f"The cluster would not admit a sandbox of runtime {runtime}: {refused.message}") from refused
    return True
