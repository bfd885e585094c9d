"""Pods and claims, as they are written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.kubernetes import KubernetesConfig, manifests

CONFIG = KubernetesConfig(
    instance="0123456789ab",
    namespace="sandboxes",
    guest=Path("/guest"),
    runtimes={"gvisor": "gvisor", "runc": "", "kata-clh": "kata-clh"},
    image="registry.example.org/exec:1",
)
LABELS = {"org": "acme", "project": "", "lease": "m_" + "0" * 24, "class": "exec", "instance": "0123456789ab"}
SPEC = Spec(
    "m-" + "0" * 24 + "-0001",
    "gvisor",
    CONFIG.image,
    "/mnt/data",
    limits=Limits(memory=1 << 30, cpus=1.5, pids=100, disk=1 << 30),
    labels=LABELS,
)
GIB = 1 << 30


@pytest.mark.parametrize("runtime", CONFIG.runtimes)
def test_what_pod_security_restricted_asks_for(runtime: str):
    pod = manifests.pod(replace(SPEC, runtime=runtime), CONFIG)
    inner = pod["spec"]
    (container,) = inner["containers"]
    assert inner["securityContext"]["runAsNonRoot"]
    assert inner["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    for volume in inner["volumes"]:
        assert set(volume) <= {"name", "emptyDir", "persistentVolumeClaim"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(inner)


def test_nothing_of_the_cluster_gets_in():
    inner = manifests.pod(SPEC, CONFIG)["spec"]
    assert inner["automountServiceAccountToken"] is False
    assert inner["enableServiceLinks"] is False
    assert inner["hostname"] == "sandbox"
    assert inner["dnsPolicy"] == "None"
    assert "env" not in inner["containers"][0]


def test_it_runs_once_and_never_with_grace_0():
    """With grace 0 the object would be gone before the processes."""
    inner = manifests.pod(SPEC, CONFIG)["spec"]
    assert inner["restartPolicy"] == "Never"
    assert inner["terminationGracePeriodSeconds"] > 0
    assert inner["activeDeadlineSeconds"] > 86_400  # no lease lives longer


def test_a_runtime_is_a_runtime_class():
    assert manifests.pod(SPEC, CONFIG)["spec"]["runtimeClassName"] == "gvisor"
    assert "runtimeClassName" not in manifests.pod(replace(SPEC, runtime="runc"), CONFIG)["spec"]


def test_labels_lead_to_the_lease():
    metadata = manifests.pod(SPEC, CONFIG)["metadata"]
    assert metadata["name"] == SPEC.name
    assert metadata["labels"]["sandboxhub/lease"] == metadata["annotations"]["sandboxhub/lease"] == LABELS["lease"]
    assert metadata["labels"]["sandboxhub/instance"] == metadata["annotations"]["sandboxhub/instance"] == CONFIG.instance
    assert "sandboxhub/project" not in metadata["labels"]


def test_what_is_no_label_is_an_annotation():
    metadata = manifests.pod(replace(SPEC, labels={"org": "acme_"}), CONFIG)["metadata"]
    assert "sandboxhub/org" not in metadata["labels"]
    assert metadata["annotations"]["sandboxhub/org"] == "acme_"


def test_a_label_of_the_lease_cannot_claim_another_deployment():
    metadata = manifests.pod(replace(SPEC, labels={"instance": "ffffffffffff"}), CONFIG)["metadata"]
    assert metadata["labels"]["sandboxhub/instance"] == metadata["annotations"]["sandboxhub/instance"] == CONFIG.instance


def test_limits():
    resources = manifests.pod(SPEC, CONFIG)["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "1500m", "memory": str(GIB), "ephemeral-storage": str(GIB + (64 << 20))}
    assert int(resources["requests"]["memory"]) == GIB // 8
    held = manifests.pod(replace(SPEC, volume="vol-1"), CONFIG)["spec"]["containers"][0]["resources"]
    assert held["limits"]["ephemeral-storage"] == str(64 << 20)


def test_the_bound_of_processes_is_set_where_a_sandbox_counts_its_own():
    def last(runtime: str) -> str:
        return manifests.pod(replace(SPEC, runtime=runtime), CONFIG)["spec"]["containers"][0]["command"][-1]

    assert last("gvisor") == "100"
    assert last("runc") == last("kata-clh") == ""


def test_what_is_writable():
    inner = manifests.pod(SPEC, CONFIG)["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in inner["containers"][0]["volumeMounts"]}
    assert set(mounts) == {"/mnt/data", "/tmp", "/var/tmp", "/run", "/dev/shm", "/.sandboxhub"}
    volumes = {volume["name"]: volume for volume in inner["volumes"]}
    assert set(mounts.values()) == set(volumes)
    assert volumes["work"]["emptyDir"] == {"sizeLimit": str(GIB)}
    assert all("sizeLimit" in volume["emptyDir"] for volume in volumes.values())


def test_a_volume_is_the_workdir():
    pod = manifests.pod(replace(SPEC, volume="vol-1", workdir="/work"), CONFIG)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["work"] == {"name": "work", "persistentVolumeClaim": {"claimName": "vol-1"}}
    assert pod["metadata"]["labels"]["sandboxhub/volume"] == "vol-1"


@pytest.mark.parametrize("memory", [16 << 20, 128 << 20, 1 << 30, 64 << 30])
def test_memory_file_systems_fit_into_half_of_memory(memory: int):
    sizes = manifests.tmpfs_sizes(memory)
    assert sizes.tmp + sizes.shm + sizes.run <= memory // 2


def test_a_claim():
    claim = manifests.claim("vol-1", 48 << 20, replace(CONFIG, storage_class="fast"))
    json.dumps(claim)
    assert claim["spec"]["resources"]["requests"]["storage"] == str(48 << 20)
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["metadata"]["annotations"]["sandboxhub/size"] == str(48 << 20)
    assert "storageClassName" not in manifests.claim("vol-1", 1, CONFIG)["spec"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"instance": "x"},
        {"namespace": "Sand_boxes"},
        {"runtimes": {}},
        {"runtimes": {"docker": ""}},
        {"image": ""},
        {"image": "-x"},
    ],
)
def test_a_wrong_configuration_is_refused(wrong):
    with pytest.raises(ValueError):
        replace(CONFIG, **wrong)
