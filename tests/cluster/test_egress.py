"""The engine's own look whether sandboxes get out. On the test node they do: no plugin enforces NetworkPolicies there."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp  # noqa: TID251 - not the engine's own exec
import pytest
from harness.manifests import Deployed, deployed
from harness.pods import IMAGE
from harness.waiting import until

from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine
from sandboxes.engine.kubernetes.config import LABEL_INSTANCE, LABEL_PROBE
from sandboxes.errors import EngineError

from .faults import Node
from .pods import execute, restricted_pod


@pytest.fixture(scope="module")
def there(kubeconfig: Path) -> Iterator[Deployed]:
    with deployed(Deployed(kubeconfig)) as there:
        until(lambda: there.api.exists(there.path(there.sandboxes, "serviceaccounts/default")))
        yield there


@pytest.fixture
def config(there: Deployed, tmp_path: Path) -> KubernetesConfig:
    guest, account = Path(os.environ["SANDBOXHUB_GUEST"]), there.account(tmp_path)
    return KubernetesConfig(secrets.token_hex(6), there.sandboxes, guest, {"runc": "runc"}, IMAGE, kubeconfig=account)


async def audit(config: KubernetesConfig) -> tuple[str, ...]:
    engine = KubernetesEngine(config)
    await engine.open()
    try:
        return await engine.audit()
    finally:
        await engine.close()


def pods(there: Deployed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = there.api.get(there.path(there.sandboxes, "pods"))["items"]
    return found


@contextmanager
def cut_off(node: Node) -> Iterator[None]:
    """As an enforced policy would do it: nothing gets back to pods from the node or through it."""
    init = (node.state / "init.pid").read_text().strip()
    halves = ("10.88.0.0/17", "10.88.128.0/17")  # of config/cni

    def route(verb: str) -> None:
        for half in halves:
            subprocess.run(["nsenter", "--net", "--target", init, "ip", "route", verb, "blackhole", half], check=True)

    route("add")
    try:
        yield
    finally:
        route("del")


@contextmanager
def mute(there: Deployed) -> Iterator[None]:
    """What kubelets say of sandboxes' pods is not taken: as if it came later than it does."""
    policies, name = "/apis/admissionregistration.k8s.io/v1/validatingadmission", there.sandboxes
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": there.sandboxes}}
    specs = {
        "policies": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]},
        "policybindings": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": only_here}},
    }
    kinds = {"policies": "ValidatingAdmissionPolicy", "policybindings": "ValidatingAdmissionPolicyBinding"}
    for what, spec in specs.items():
        manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kinds[what], "metadata": {"name": name}, "spec": spec}
        there.api.create(policies + what, manifest)
    try:
        until(lambda: not takes_statuses(there))
        yield
    finally:
        for what in specs:
            there.api.delete(f"{policies}{what}/{name}")


def takes_statuses(there: Deployed) -> bool:
    """Whether the API server takes what is said of a pod."""
    pod = restricted_pod("nowhere", "runc")
    pod["spec"]["schedulerName"] = "nobody"
    pod, path = there.api.create(there.path(there.sandboxes, "pods"), pod), there.path(there.sandboxes, "pods/nowhere")
    try:
        there.api.replace(f"{path}/status?dryRun=All", pod)
    except urllib.error.HTTPError as error:
        return error.code != 422
    finally:
        there.api.delete(path)
    return True


def is_reached(there: Deployed) -> bool:
    """Whether somebody is connected to the guest of the one pod."""
    init_and_connect = "test $(cat /proc/[0-9]*/comm | grep -cx guest) -ge 2"
    try:
        (pod,) = pods(there)
        path = there.path(there.sandboxes, f"pods/{pod['metadata']['name']}")
        return execute(there.api, path, "sh", "-c", init_and_connect)[1]["status"] == "Success"
    except (ValueError, aiohttp.ClientError):
        return False


@pytest.mark.parametrize("runtime", ["gvisor", "runc"])
async def test_it_is_told_where_a_sandbox_gets(there: Deployed, config: KubernetesConfig, node: Node, runtime: str):
    (warning,) = await audit(replace(config, runtimes={runtime: runtime}))
    address = there.api.server.removeprefix("https://")
    assert f"the API server ({address})" in warning
    assert "its node's kubelet (" in warning
    assert there.sandboxes in warning
    assert pods(there) == []


async def test_a_node_that_is_slow_to_say_where_it_is(there: Deployed, config: KubernetesConfig, node: Node):
    """A pod can be reached before its kubelet has told of it."""
    with mute(there):
        found = asyncio.create_task(audit(config))
        await asyncio.to_thread(until, lambda: is_reached(there))
        assert "hostIP" not in pods(there)[0]["status"]
    (warning,) = await found
    assert "its node's kubelet (" in warning


async def test_a_network_that_keeps_it_in(there: Deployed, config: KubernetesConfig, node: Node):
    with cut_off(node):
        assert await audit(config) == ()
    assert pods(there) == []


async def test_what_a_crash_left_is_removed(there: Deployed, config: KubernetesConfig, node: Node):
    left = restricted_pod("left", "runc")
    left["metadata"]["labels"] = {LABEL_INSTANCE: config.instance, LABEL_PROBE: "egress"}
    left["spec"]["containers"][0]["command"] = ["true"]
    there.api.create(there.path(there.sandboxes, "pods"), left)
    until(lambda: [pod["status"]["phase"] for pod in pods(there)] == ["Succeeded"], seconds=120)
    await audit(config)
    until(lambda: pods(there) == [])


async def test_it_could_not_be_tried(there: Deployed, config: KubernetesConfig):
    with pytest.raises(EngineError, match="image"):
        await audit(replace(config, image="localhost/no-such-image:1"))
    assert pods(there) == []
