"""The provisioner of the storage class ``local``: a directory of the node for every claim, removed with the claim. Runs on the node.

Volumes of type ``local`` get the pod's fsGroup, as those of most real drivers do and those of the hostpath provisioner do not.
Their size is not enforced.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .api import ERRORS, Api
from .objects import NODE, PROVISIONER, STORAGE_CLASS

_VOLUMES = "/api/v1/persistentvolumes"
_CLAIMS = "/api/v1/persistentvolumeclaims"
_DIRECTORIES = Path("/mnt/volumes")


def provision(api: Api, claim: dict[str, Any]) -> None:
    """Make the volume of a new claim. Making it twice is harmless: its name is the claim's uid."""
    spec, metadata = claim["spec"], claim["metadata"]
    if spec.get("storageClassName") != STORAGE_CLASS or claim["status"]["phase"] != "Pending" or "deletionTimestamp" in metadata:
        return
    name = f"pvc-{metadata['uid']}"
    directory = _DIRECTORIES / name
    directory.mkdir(parents=True, exist_ok=True)
    node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    api.create(
        _VOLUMES,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
            "spec": {
                "storageClassName": STORAGE_CLASS,
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
                "local": {"path": str(directory)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
            },
        },
    )


def reclaim(api: Api, volume: dict[str, Any]) -> None:
    """Remove a volume whose claim is gone, with its data."""
    spec, metadata = volume["spec"], volume["metadata"]
    if spec.get("storageClassName") != STORAGE_CLASS or volume["status"]["phase"] != "Released" or "deletionTimestamp" in metadata:
        return
    directory = Path(spec["local"]["path"])
    if directory.exists():
        shutil.rmtree(directory)
    api.delete(f"{_VOLUMES}/{metadata['name']}")


def follow(api: Api, path: str, handle: Callable[[Api, dict[str, Any]], None]) -> None:
    while True:
        try:
            for found in api.watch(path):
                handle(api, found)
        except ERRORS as error:  # the API server is restarted in tests
            print(f"{path}: {error}", flush=True)
            time.sleep(0.5)


def main() -> None:
    api = Api(Path("/mnt/credentials/admin.kubeconfig"))
    threading.Thread(target=follow, args=(api, _VOLUMES, reclaim), daemon=True).start()
    follow(api, _CLAIMS, provision)


if __name__ == "__main__":
    main()
