"""Pods and claims, as they are sent to the cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.kubernetes import boot
from sandboxes.engine.kubernetes.config import (
    ANNOTATION_SIZE,
    CONTAINER,
    LABEL_INSTANCE,
    LABEL_RUNTIME,
    LABEL_VOLUME,
    TENANT_ID,
    KubernetesConfig,
)
from sandboxes.engine.tmpfs import tmpfs_sizes

_MIB = 1 << 20
#: A limit of the node's disk beyond the workdir: the guest, what the runtime keeps, an empty log.
_DISK_BESIDE = 64 * _MIB
#: No lease lives longer than a day: a pod that outlives its control plane ends by itself.
_LONGEST_LIFE = 25 * 3600
#: Between SIGTERM, on which the guest ends its commands and itself, and SIGKILL. With 0 the object would be gone before the processes.
_GRACE = 1
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def pod(spec: Spec, config: KubernetesConfig) -> dict[str, Any]:
    """The whole pod. It passes Pod Security "restricted"."""
    mounts, volumes = _storage(spec)
    inner: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": "sandbox",
        # There is no egress, and the cluster's names are none of the tenant's business.
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "terminationGracePeriodSeconds": _GRACE,
        "activeDeadlineSeconds": _LONGEST_LIFE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": TENANT_ID,
            "runAsGroup": TENANT_ID,
            "fsGroup": TENANT_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": spec.image,
                "imagePullPolicy": "IfNotPresent",
                "command": boot.first_process(spec.workdir, _inner_pids(spec)),
                "workingDir": "/",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": _resources(spec.limits, workdir_on_node=spec.volume is None),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if runtime_class := config.runtimes[spec.runtime]:
        inner["runtimeClassName"] = runtime_class
    labels = {"app.kubernetes.io/name": "sandbox", LABEL_RUNTIME: spec.runtime} | _prefixed(spec.labels)
    labels |= {"app.kubernetes.io/managed-by": "sandboxhub", LABEL_INSTANCE: config.instance}
    if spec.volume is not None:
        labels[LABEL_VOLUME] = spec.volume
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spec.name,
            "namespace": config.namespace,
            "labels": {key: value for key, value in labels.items() if _LABEL_VALUE.fullmatch(value)},
            "annotations": {**_prefixed(spec.labels), LABEL_INSTANCE: config.instance},
        },
        "spec": inner,
    }


def claim(name: str, size: int, config: KubernetesConfig) -> dict[str, Any]:
    """The PersistentVolumeClaim of a volume of ``size`` bytes."""
    inner: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": str(size)}}}
    if config.storage_class:
        inner["storageClassName"] = config.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": config.namespace,
            "labels": {"app.kubernetes.io/managed-by": "sandboxhub", LABEL_INSTANCE: config.instance},
            "annotations": {ANNOTATION_SIZE: str(size)},
        },
        "spec": inner,
    }


def _prefixed(labels: Mapping[str, str]) -> dict[str, str]:
    return {f"sandboxhub/{key}": value for key, value in labels.items() if value}


def _inner_pids(spec: Spec) -> int | None:
    """gVisor counts the processes of one sandbox by itself; to a shared kernel the user 1000 of all pods is one and the same."""
    return spec.limits.pids if spec.runtime == "gvisor" else None


def _resources(limits: Limits, *, workdir_on_node: bool) -> dict[str, Any]:
    """Requests are what an idle sandbox is worth: most of them wait most of the time."""
    disk = _DISK_BESIDE + (limits.disk if workdir_on_node else 0)
    milli = max(round(limits.cpus * 1000), 1)
    return {
        "limits": {"cpu": f"{milli}m", "memory": str(limits.memory), "ephemeral-storage": str(disk)},
        "requests": {
            "cpu": f"{max(milli // 8, 1)}m",
            "memory": str(max(limits.memory // 8, 1)),
            "ephemeral-storage": str(max(disk // 4, 1)),
        },
    }


def _storage(spec: Spec) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What is mounted, and where from. Everything else of the root is read-only."""
    sizes = tmpfs_sizes(spec.limits.memory)

    def memory(size: int) -> dict[str, Any]:
        return {"emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}

    if spec.volume is None:
        work: dict[str, Any] = {"emptyDir": {"sizeLimit": str(spec.limits.disk)}}
    else:
        work = {"persistentVolumeClaim": {"claimName": spec.volume}}
    sources = {
        "work": work,
        "guest": {"emptyDir": {"sizeLimit": str(_DISK_BESIDE)}},
        "tmp": memory(sizes.tmp),
        "shm": memory(sizes.shm),
        "run": memory(sizes.run),
    }
    places = [
        ("work", spec.workdir),
        ("guest", boot.UPLOAD_DIRECTORY),
        ("tmp", "/tmp"),  # noqa: S108
        ("tmp", "/var/tmp"),  # noqa: S108
        ("shm", "/dev/shm"),  # noqa: S108
        ("run", "/run"),
    ]
    mounts = [{"name": name, "mountPath": place} for name, place in places]
    return mounts, [{"name": name, **source} for name, source in sources.items()]
