"""Whether a sandbox gets out: NetworkPolicies are only as good as the network plugin that enforces them, and many clusters' does not.

Nothing but a try tells. A pod of the engine's own, made as a sandbox is made, connects to what a tenant would like best.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.kubernetes import boot, manifests, reasons
from sandboxes.engine.kubernetes.client import Cluster
from sandboxes.engine.kubernetes.config import LABEL_INSTANCE, LABEL_PROBE, KubernetesConfig
from sandboxes.engine.kubernetes.starting import START_MOST, Starting
from sandboxes.engine.kubernetes.watch import Pods
from sandboxes.engine.tasks import finish
from sandboxes.errors import EngineError
from sandboxes.guest import Command, Guest, run

_LIMITS = Limits(memory=128 << 20, cpus=0.1, disk=16 << 20)
_WORKDIR = "/work"
_ANSWER_WITHIN = 30.0  #: seconds that the guest has to greet, and then to try all addresses
_ADDRESS_WITHIN = 30.0  #: seconds that the node has to say its address
_LIFE = round(START_MOST + _ADDRESS_WITHIN + 2 * _ANSWER_WITHIN)  #: seconds until a probe ends that nobody is left to end
_METADATA = "169.254.169.254:80"  #: where clouds tell a machine its credentials
_KUBELET_PORT = 10250

Targets = dict[str, str]  #: address → what is there
Remove = Callable[[str], Coroutine[Any, Any, None]]


async def probe(
    cluster: Cluster, pods: Pods, starting: Starting, config: KubernetesConfig, runtime: str, remove: Remove
) -> tuple[str, ...]:
    """One warning, or none. ``remove`` ends a pod by its name. Raises ``Refused`` or ``EngineError`` when it could not be tried."""
    await _clean_up(cluster, config)
    manifest = manifests.pod(Spec(f"t-{secrets.token_hex(12)}-0000", runtime, config.image, _WORKDIR, limits=_LIMITS), config)
    manifest["metadata"]["labels"][LABEL_PROBE] = "egress"
    manifest["spec"]["activeDeadlineSeconds"] = _LIFE
    name = manifest["metadata"]["name"]
    try:
        pod = await cluster.create("pods", manifest)
        pods.note(pod)
        guest = await Guest.open(await starting.bring_up(pod), timeout=_ANSWER_WITHIN)
        try:
            targets = await _targets(cluster.server, await _node_of(name, pods), Path("/etc/resolv.conf"))
            reached = await _reached(guest, list(targets))
        finally:
            guest.close()
    finally:
        await finish(remove(name))
    return warning({address: targets[address] for address in reached}, config.namespace)


def warning(reached: Targets, namespace: str) -> tuple[str, ...]:
    """What is said of it."""
    if not reached:
        return ()
    places = ", ".join(f"{what} ({address})" for address, what in reached.items())
    return (
        f"Sandboxes are not cut off from the network: from within one, a connection was made to {places}. Either no NetworkPolicy denies "
        f"all traffic in namespace {namespace} (deploy/ has one), or the cluster's network plugin does not enforce it.",
    )


async def _node_of(name: str, pods: Pods) -> str:
    """The address of the node of pod ``name``."""
    try:
        async with asyncio.timeout(_ADDRESS_WITHIN):
            return reasons.node_address(await pods.until(name, reasons.node_address))
    except TimeoutError:
        raise EngineError(f"Its node did not say its address within {_ADDRESS_WITHIN:.0f} s.") from None


async def _targets(server: str, node: str, resolv_conf: Path) -> Targets:
    """What takes connections in every cluster, or in many. Only one that is made proves anything."""
    found: Targets = {}
    url = urlsplit(server)
    port = url.port or 443
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)
    except OSError:  # only a proxy knows the name
        answers = []
    for _family, _kind, _proto, _name, address in answers[:1]:
        found[_joined(str(address[0]), port)] = "the API server"
    for resolver in _resolvers(resolv_conf):
        found[_joined(resolver, 53)] = "the name server"
    found[_joined(node, _KUBELET_PORT)] = "its node's kubelet"
    found[_METADATA] = "the cloud's metadata"
    return found


def _resolvers(resolv_conf: Path) -> list[str]:
    """Those that this process asks, which in a cluster are the cluster's; a loopback address would mean the sandbox itself."""
    try:
        lines = [line.split() for line in resolv_conf.read_text(errors="replace").splitlines()]
    except OSError:
        return []
    named = [words[1].partition("%")[0] for words in lines if len(words) > 1 and words[0] == "nameserver"]
    return [address for address in named if _is_elsewhere(address)]


def _is_elsewhere(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.version == 6 and address.is_link_local)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _reached(guest: Guest, addresses: list[str]) -> list[str]:
    argv = [part.encode() for part in boot.run_guest("reach", *addresses)]
    command = Command(argv, _WORKDIR.encode(), {b"PATH": b"/usr/local/bin:/usr/bin:/bin"})
    result = await run(guest, command, timeout=_ANSWER_WITHIN)
    if result.code != 0:
        said = result.start_error or result.stderr.decode(errors="replace").strip()
        raise EngineError(f"The guest could not try it: {said[:200] or result.outcome}")
    lines = result.stdout.decode(errors="replace").split()
    return [address for address in addresses if address in lines]


async def _clean_up(cluster: Cluster, config: KubernetesConfig) -> None:
    """Remove the probes of processes that died under them. They have ended by their own deadline."""
    found, _ = await cluster.list("pods", f"{LABEL_INSTANCE}={config.instance},{LABEL_PROBE}")
    for pod in found:
        if reasons.death(pod) is not None:
            await cluster.delete("pods", reasons.name_of(pod), reasons.uid_of(pod))
