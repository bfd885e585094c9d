"""Make a new cluster usable: the objects that an admin makes first, and then wait for its node.

objects.py KUBECONFIG
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .api import ERRORS, Api

NODE = "node"
STORAGE_CLASS = "local"
PROVISIONER = "sandboxhub.test/local"
RUNTIMES = ("gvisor", "runc")
_PATIENCE = 120.0  # seconds, for each step: many times what it takes on an idle machine


def make(api: Api) -> None:
    for runtime in RUNTIMES:
        kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
        api.create("/apis/node.k8s.io/v1/runtimeclasses", {**kind, "metadata": {"name": runtime}, "handler": runtime})
    api.create(
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "Immediate",  # there is one node only
        },
    )


def serves(api: Api) -> bool:
    return bool(api.get("/readyz") == b"ok")


def takes_pods(api: Api) -> bool:
    """The node is Ready and untainted, and pods of the default namespace have their service account."""
    api.get("/api/v1/namespaces/default/serviceaccounts/default")
    node: dict[str, Any] = api.get(f"/api/v1/nodes/{NODE}")
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def wait(what: str, condition: Callable[[], bool]) -> None:
    deadline, last = time.monotonic() + _PATIENCE, "not yet"
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except ERRORS as error:
            last = str(error)
        time.sleep(0.1)
    sys.exit(f"{what}: not after {_PATIENCE:.0f} s ({last})")


def main(kubeconfig: Path) -> None:
    api = Api(kubeconfig)
    wait("the API server is ready", lambda: serves(api))
    make(api)
    wait("the node is ready", lambda: takes_pods(api))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
