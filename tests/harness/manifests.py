"""The manifests of ``deploy/``, read as they are, and made a cluster's under names of their own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from cluster.api import Api

DIRECTORY = Path(__file__).resolve().parents[2] / "deploy"
CONTROL_PLANE, SANDBOXES = "sandboxhub", "sandboxes"
_STRICT = "fieldValidation=Strict"

Manifest = dict[str, Any]


def kustomization() -> Manifest:
    found: Manifest = yaml.safe_load((DIRECTORY / "kustomization.yaml").read_text())
    return found


def read(file: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(file.read_text()))


def manifests() -> list[Manifest]:
    """All that are deployed, in the order of their files' names, which is the order of ``kubectl apply -f``."""
    return [manifest for file in sorted((DIRECTORY / "kubernetes").glob("*.yaml")) for manifest in read(file)]


def one(kind: str, found: list[Manifest], namespace: str | None = None) -> Manifest:
    (manifest,) = (each for each in found if each["kind"] == kind and namespace in (None, each["metadata"].get("namespace")))
    return manifest


def collection(manifest: Manifest) -> str:
    """The path of the collection that it belongs to."""
    version, kind = manifest["apiVersion"], manifest["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    space = manifest["metadata"].get("namespace")
    return "/".join(["", "apis" if "/" in version else "api", version, *(["namespaces", space] if space else []), plural])


class Deployed:
    """``deploy/`` on a cluster, in namespaces of its own."""

    def __init__(self, admin: Path) -> None:
        self.admin = admin
        self.api = Api(admin)
        self._suffix = secrets.token_hex(4)
        self.control_plane, self.sandboxes = f"{CONTROL_PLANE}-{self._suffix}", f"{SANDBOXES}-{self._suffix}"
        self.found = [self._renamed(manifest) for manifest in manifests()]

    def _renamed(self, manifest: Manifest) -> Manifest:
        """As an admin who calls the namespaces otherwise would change them."""
        names = {CONTROL_PLANE: self.control_plane, SANDBOXES: self.sandboxes}
        meta = manifest["metadata"]
        if "namespace" in meta:
            meta["namespace"] = names[meta["namespace"]]
        match manifest["kind"]:
            case "Namespace":
                meta["name"] = names[meta["name"]]
            case "RuntimeClass":  # the cluster has one of this name
                meta["name"] += f"-{self._suffix}"
            case "RoleBinding":
                for subject in manifest["subjects"]:
                    subject["namespace"] = names[subject["namespace"]]
        return manifest

    def apply(self, manifest: Manifest) -> None:
        self.api.create(f"{collection(manifest)}?{_STRICT}", manifest)

    def path(self, namespace: str, what: str) -> str:
        return f"/api/v1/namespaces/{namespace}/{what}"

    def account(self, directory: Path) -> Path:
        """A kubeconfig of the control plane's account."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = self.api.create(self.path(self.control_plane, "serviceaccounts/sandboxhub/token"), request)
        config = json.loads(self.admin.read_text())
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        path = directory / "account.kubeconfig"
        path.write_text(json.dumps(config))
        return path


@contextmanager
def deployed(there: Deployed) -> Iterator[Deployed]:
    """Apply it, and take it away again. The Deployment is left to who can run it."""
    rest = [manifest for manifest in there.found if manifest["kind"] != "Deployment"]
    try:
        for manifest in rest:
            there.apply(manifest)
        yield there
    finally:
        for manifest in rest:
            if manifest["kind"] in ("Namespace", "RuntimeClass"):
                there.api.delete(f"{collection(manifest)}/{manifest['metadata']['name']}")
