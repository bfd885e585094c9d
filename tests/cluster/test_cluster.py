"""The cluster is one that other tests can believe in, with real isolation, admission and volumes; and it leaves nothing."""

from __future__ import annotations

import json
import os
import secrets
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import until

from .api import Api
from .faults import Node
from .fixtures import run, up
from .objects import RUNTIMES
from .pods import Namespace, restricted_pod

SUCCESS = {"status": "Success"}


@pytest.fixture
def namespace(kubeconfig: Path) -> Iterator[Namespace]:
    made = Namespace(kubeconfig, f"test-{secrets.token_hex(4)}")
    yield made
    made.api.delete(made.path)  # its pods go in the background: nothing here has their names again


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refusal(api: Api, path: str, body: dict[str, Any]) -> str:
    with pytest.raises(urllib.error.HTTPError) as caught:
        api.create(path, body)
    assert caught.value.code == 403
    return str(json.load(caught.value)["message"])


def test_a_restricted_pod_runs_under_each_runtime(namespace: Namespace, runtime: str) -> None:
    namespace.start(restricted_pod("pod", runtime))
    output, status = namespace.exec(
        "pod", "sh", "-c", "id -u; uname -r; touch /work/file && stat -c %g /work/file; /.guest/guest 2>&1 | head -c 1"
    )
    assert status["status"] == "Success", (output, status)
    uid, kernel, group, _ = output.split("\n")
    assert (uid, group) == ("1000", "1000")
    assert (kernel == os.uname().release) == (runtime == "runc")  # gVisor is a kernel of its own


def test_exec_tells_how_a_command_ended(namespace: Namespace, runtime: str) -> None:
    namespace.start(restricted_pod("pod", runtime))
    _, status = namespace.exec("pod", "sh", "-c", "exit 7")
    assert (status["reason"], status["details"]["causes"]) == ("NonZeroExitCode", [{"reason": "ExitCode", "message": "7"}])


def test_what_is_not_restricted_is_refused(namespace: Namespace) -> None:
    pod = restricted_pod("pod", "runc")
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "violates PodSecurity" in refusal(namespace.api, f"{namespace.path}/pods", pod)


def test_a_runtime_class_that_is_not_there_is_refused(namespace: Namespace) -> None:
    assert 'RuntimeClass "kata" not found' in refusal(namespace.api, f"{namespace.path}/pods", restricted_pod("pod", "kata"))


def test_a_quota_is_kept_and_a_network_policy_is_taken(namespace: Namespace) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "spec": {"hard": {"pods": "0"}}}
    namespace.api.create(f"{namespace.path}/resourcequotas", quota)
    until(lambda: "hard" in namespace.api.get(f"{namespace.path}/resourcequotas/quota")["status"])
    assert "exceeded quota" in refusal(namespace.api, f"{namespace.path}/pods", restricted_pod("pod", "runc"))
    policies = namespace.path.replace("/api/v1", "/apis/networking.k8s.io/v1") + "/networkpolicies"
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"}, "spec": {"podSelector": {}}}
    namespace.api.create(policies, policy)
    assert namespace.api.get(f"{policies}/deny")["spec"]["policyTypes"] == ["Ingress"]


def test_a_claim_gets_a_volume_of_the_pods_group_that_goes_with_it(namespace: Namespace) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    claims = f"{namespace.path}/persistentvolumeclaims"
    namespace.api.create(claims, claim)
    until(lambda: namespace.api.get(f"{claims}/claim")["status"]["phase"] == "Bound")
    volume = f"/api/v1/persistentvolumes/{namespace.api.get(f'{claims}/claim')['spec']['volumeName']}"
    namespace.start(restricted_pod("writer", "gvisor", "claim"))
    assert namespace.exec("writer", "sh", "-c", "echo kept >/work/file")[1]["status"] == "Success"
    namespace.delete("pods/writer")
    namespace.start(restricted_pod("reader", "runc", "claim"))
    assert namespace.exec("reader", "cat", "/work/file")[0] == "kept\n"
    namespace.delete("pods/reader")
    namespace.delete("persistentvolumeclaims/claim")
    until(lambda: not namespace.api.exists(volume))


def test_a_deleted_pods_processes_can_be_seen_to_end(namespace: Namespace, node: Node, runtime: str) -> None:
    uid = namespace.start(restricted_pod("pod", runtime))["metadata"]["uid"]
    assert node.processes(uid)
    namespace.delete("pods/pod")
    until(lambda: not node.processes(uid))


def test_an_api_server_that_was_killed_comes_back_and_pods_live_on(namespace: Namespace, node: Node) -> None:
    namespace.start(restricted_pod("pod", "gvisor"))
    with node.stopped("kube-apiserver"), pytest.raises(OSError):
        namespace.api.get("/readyz")
    until(lambda: served(namespace.api))
    assert namespace.exec("pod", "echo", "there")[0] == "there\n"


def served(api: Api) -> bool:
    try:
        return bool(api.get("/readyz") == b"ok")
    except OSError:
        return False


# What a node could change on the machine, or leave there, beside what bears its name.
SETTINGS = ("kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "vm/overcommit_memory", "net/ipv4/ip_forward")
DIRECTORIES = (
    "/etc/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/netns",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/kubelet",
)


def machine() -> dict[str, Any]:
    settings = {name: (Path("/proc/sys") / name).read_text() for name in SETTINGS}
    return {**settings, **{name: Path(name).exists() for name in DIRECTORIES}}


def links() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def cgroups(name: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/{name}"))


def processes_with(text: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if text.encode() in command or text in (process / "mountinfo").read_text():
                found.append(f"{process.name}: {command!r}")
        except OSError:
            continue
    return found


def test_down_leaves_nothing(kubeconfig: Path, tmp_path: Path) -> None:
    """A second cluster beside the first, with a pod of each runtime, ended while they run."""
    state = tmp_path / "cluster"
    before = machine()
    namespace = Namespace(up(SANDBOXHUB_CLUSTER=str(state)), "test")
    cgroup = (state / "cgroup").read_text().strip()
    link = (state / "link").read_text().strip()
    try:
        for name in RUNTIMES:
            namespace.start(restricted_pod(name, name))
        assert processes_with(str(state)) and cgroups(cgroup) and link in links()
        assert machine() == before
    finally:
        ended = run("down", SANDBOXHUB_CLUSTER=str(state))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (processes_with(str(state)), cgroups(cgroup)) == ([], [])
    assert link not in links()
    assert machine() == before
    assert not state.exists()
    assert run("status", SANDBOXHUB_CLUSTER=str(state)).returncode == 3
    assert run("down", SANDBOXHUB_CLUSTER=str(state)).returncode == 0  # twice is once
    assert served(Api(kubeconfig))  # the other cluster did not notice
