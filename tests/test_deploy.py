"""The manifests of ``deploy/``, as far as no cluster is needed to judge them."""

from __future__ import annotations

from typing import Any

import pytest
from harness.manifests import CONTROL_PLANE, DIRECTORY, SANDBOXES, kustomization, manifests, one, read
from test_docs import documented_settings

from sandboxes.engine.kubernetes.selftest import NEEDED

ALL = manifests()
POD: dict[str, Any] = one("Deployment", ALL)["spec"]["template"]["spec"]
CONTAINERS = [*POD["initContainers"], *POD["containers"]]


def test_kustomize_takes_every_file():
    resources = sorted(DIRECTORY / path for path in kustomization()["resources"])
    assert resources == sorted((DIRECTORY / "kubernetes").glob("*.yaml"))


def test_namespaces_come_first_by_name():
    assert [manifest["kind"] for manifest in ALL[:2]] == ["Namespace", "Namespace"]


def test_the_engine_s_account_may_do_just_what_it_needs():
    rules = one("Role", ALL)["rules"]
    assert all(rule["apiGroups"] == [""] and set(rule) == {"apiGroups", "resources", "verbs"} for rule in rules)
    assert {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]} == {
        resource: set(verbs) for resource, verbs in NEEDED.items()
    }
    binding = one("RoleBinding", ALL)
    assert binding["metadata"]["namespace"] == one("Role", ALL)["metadata"]["namespace"] == SANDBOXES
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "sandboxhub", "namespace": CONTROL_PLANE}]
    assert not [manifest for manifest in ALL if manifest["kind"].startswith("Cluster")]


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container["name"])
def test_a_container_is_confined(container: dict[str, Any]):
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
    assert set(container["resources"]["requests"]) >= {"cpu", "memory"}


def test_the_account_s_token_is_the_server_s_alone():
    assert POD["automountServiceAccountToken"] is False
    assert one("ServiceAccount", ALL)["automountServiceAccountToken"] is False
    migrate, server = CONTAINERS
    assert "account" not in [mount["name"] for mount in migrate["volumeMounts"]]
    assert "account" in [mount["name"] for mount in server["volumeMounts"]]


def test_secrets_are_files():
    assert not [variable for container in CONTAINERS for variable in container["env"] if "valueFrom" in variable]
    assert {variable["name"] for variable in CONTAINERS[1]["env"]} >= {"SECRET_KEY_FILE", "DATABASE_URL_FILE"}


def test_settings_are_settings():
    given = {variable["name"] for container in CONTAINERS for variable in container["env"]} | set(one("ConfigMap", ALL)["data"])
    assert {name.removesuffix("_FILE") for name in given} <= set(documented_settings())


def test_every_mount_has_a_volume():
    volumes = {volume["name"] for volume in POD["volumes"]}
    assert {mount["name"] for container in CONTAINERS for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("namespace", [CONTROL_PLANE, SANDBOXES])
def test_all_traffic_is_denied_unless_allowed(namespace: str):
    policies = [manifest for manifest in ALL if manifest["kind"] == "NetworkPolicy" and manifest["metadata"]["namespace"] == namespace]
    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in [policy["spec"] for policy in policies]
    assert namespace != SANDBOXES or len(policies) == 1


def test_kata_s_classes_are_called_as_the_engine_looks_for_them():
    assert [manifest["metadata"]["name"] for manifest in read(DIRECTORY / "kata.yaml")] == ["kata-clh", "kata-fc"]
