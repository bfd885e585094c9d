"""``deploy/`` on a real cluster: taken by its API server, enough for the engine, and too little for anything else."""

from __future__ import annotations

import os
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.support import new_name, opened, reached
from harness.manifests import DIRECTORY, Deployed, collection, deployed, one, read
from harness.pods import IMAGE
from harness.waiting import PATIENCE, until

from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine
from sandboxes.guest import Command, run

from .api import Api
from .pods import restricted_pod

_DRY = "?dryRun=All&fieldValidation=Strict"


@pytest.fixture(scope="module")
def there(kubeconfig: Path) -> Iterator[Deployed]:
    with deployed(Deployed(kubeconfig)) as there:
        until(lambda: there.api.exists(there.path(there.sandboxes, "serviceaccounts/default")))
        until(lambda: "used" in there.api.get(there.path(there.sandboxes, "resourcequotas/sandboxes"))["status"])
        yield there


@pytest.fixture(scope="module")
def account(there: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of the control plane's account."""
    return there.account(tmp_path_factory.mktemp("account"))


def refusal(api: Api, method: str, path: str, body: dict[str, Any] | None = None) -> str:
    """What the API server says; it must be a 403."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        api._call(method, path, body)
    with refused.value as answer:
        assert answer.code == 403
        return answer.read().decode()


def test_the_rest_is_taken_too(there: Deployed):
    there.api.create(f"{collection(one('Deployment', there.found))}{_DRY}", one("Deployment", there.found))
    for manifest in read(DIRECTORY / "kata.yaml"):
        there.api.create(f"{collection(manifest)}{_DRY}", manifest)


@pytest.mark.parametrize("runtime", ["gvisor", "runc"])
async def test_the_engine_works_under_its_role(there: Deployed, account: Path, runtime: str):
    guest = Path(os.environ["SANDBOXHUB_GUEST"])
    config = KubernetesConfig("0123456789ab", there.sandboxes, guest, {runtime: runtime}, IMAGE, kubeconfig=account)
    limits = Limits(memory=256 << 20, cpus=0.5, pids=128, disk=32 << 20)
    async with opened(KubernetesEngine(config)) as engine:
        await engine.ensure_volume("kept", 16 << 20)
        spec = Spec(new_name(), runtime, IMAGE, "/work", "kept", limits)
        await engine.start(spec)
        async with reached(engine, spec.name) as guest_in:
            result = await run(guest_in, Command([b"/bin/true"], b"/work", {}), timeout=PATIENCE)
            assert result.code == 0
        await engine.end(spec.name)
        await engine.delete_volume("kept")
        assert await engine.observe() == {} == await engine.list_volumes()


@pytest.mark.parametrize(
    ("method", "namespace", "what"),
    [
        ("GET", "sandboxes", "secrets"),
        ("GET", "sandboxes", "pods/any/log"),
        ("DELETE", "sandboxes", "pods"),
        ("GET", "control_plane", "secrets"),
        ("GET", "control_plane", "configmaps/sandboxhub"),
        ("GET", "control_plane", "pods"),
        ("GET", "control_plane", "pods/any/exec?command=id&stdout=true"),
        ("POST", "control_plane", "pods/any/exec?command=id&stdout=true"),
        ("POST", "control_plane", "pods"),
        ("POST", "control_plane", "serviceaccounts/sandboxhub/token"),
    ],
)
def test_its_account_may_do_nothing_else(there: Deployed, account: Path, method: str, namespace: str, what: str):
    body = restricted_pod("any", "runc") if method == "POST" else None
    assert "cannot" in refusal(Api(account), method, there.path(getattr(there, namespace), what), body)


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/namespaces", "/api/v1/pods", "/api/v1/secrets", "/api/v1/persistentvolumes"])
def test_its_account_sees_nothing_of_the_cluster(account: Path, path: str):
    assert "cannot" in refusal(Api(account), "GET", path)


def _capable(pod: dict[str, Any]) -> None:
    pod["spec"]["containers"][0]["securityContext"]["capabilities"] = {"add": ["SYS_ADMIN"]}


def _root(pod: dict[str, Any]) -> None:
    pod["spec"]["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}


def _host_path(pod: dict[str, Any]) -> None:
    pod["spec"]["volumes"] = [{"name": "work", "hostPath": {"path": "/"}}]


def _host_network(pod: dict[str, Any]) -> None:
    pod["spec"]["hostNetwork"] = True


@pytest.mark.parametrize("change", [_capable, _root, _host_path, _host_network])
def test_no_pod_gets_hold_of_the_node(there: Deployed, account: Path, change: Any):
    """Neither by the engine's right to create pods, nor by an admin's."""
    pod = restricted_pod("any", "runc")
    there.api.create(there.path(there.sandboxes, f"pods{_DRY}"), pod)
    change(pod)
    for api, namespace in ((Api(account), there.sandboxes), (there.api, there.sandboxes), (there.api, there.control_plane)):
        assert "PodSecurity" in refusal(api, "POST", there.path(namespace, f"pods{_DRY}"), pod)


def test_quota_and_limits(there: Deployed, account: Path):
    pods = there.path(there.sandboxes, f"pods{_DRY}")
    pod = restricted_pod("any", "runc")
    del pod["spec"]["containers"][0]["resources"]
    assert set(Api(account).create(pods, pod)["spec"]["containers"][0]["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"memory": "100Gi"}}
    assert "maximum memory usage per Container" in refusal(Api(account), "POST", pods, pod)
    service = {"metadata": {"name": "any"}, "spec": {"ports": [{"port": 80}]}}
    assert "exceeded quota" in refusal(there.api, "POST", there.path(there.sandboxes, f"services{_DRY}"), service)
