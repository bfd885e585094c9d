"""What the engine is told, and the names that it gives. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # Kubernetes' own term
VOLUME_NAME = _DNS_LABEL  #: a claim's name is the volume's own
#: A reference to an image, as far as it must be checked before the cluster does.
IMAGE_REFERENCE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}")
_INSTANCE = re.compile(r"[0-9a-f]{12}")

CONTAINER = "sandbox"
#: Who the guest and the tenant's commands are. Pod Security "restricted" allows the guest no other user.
TENANT_ID = 1000

LABEL_INSTANCE = "sandboxhub/instance"  #: the deployment; what carries another is not touched
LABEL_RUNTIME = "sandboxhub/runtime"
LABEL_VOLUME = "sandboxhub/volume"  #: on a pod: the volume that it mounts
LABEL_PROBE = "sandboxhub/probe"  #: on a pod that is no sandbox: what it tries out
ANNOTATION_SIZE = "sandboxhub/size"  #: on a claim: the bytes that were asked for

#: The RuntimeClass of each runtime unless the deployment names another.
RUNTIME_CLASSES = {"gvisor": "gvisor", "runc": "runc", "kata-clh": "kata-clh", "kata-fc": "kata-fc"}


@dataclass(frozen=True)
class KubernetesConfig:
    """How one deployment runs sandboxes in a cluster."""

    instance: str  #: the deployment's id, 12 hex digits
    namespace: str  #: for sandboxes and volumes, and best for nothing else
    guest: Path  #: the static guest program, for images that do not bring it
    runtimes: Mapping[str, str]  #: each runtime to its RuntimeClass, in order of preference; an empty one is the nodes' own default
    image: str  #: the default one
    storage_class: str = ""  #: of new volumes; empty: the cluster's default
    schedule_wait: float = 5.0  #: seconds that a pod may wait for a node with room
    kubeconfig: Path | None = None  #: None: the service account of the pod that the engine itself runs in

    def __post_init__(self) -> None:
        if not _INSTANCE.fullmatch(self.instance):
            raise ValueError("instance must be 12 hex digits")
        if not _DNS_LABEL.fullmatch(self.namespace):
            raise ValueError(f"{self.namespace!r} is not the name of a namespace")
        if not IMAGE_REFERENCE.fullmatch(self.image):
            raise ValueError(f"{self.image!r} is not the reference of an image")
        unknown = set(self.runtimes) - set(RUNTIME_CLASSES)
        if unknown or not self.runtimes:
            raise ValueError(f"runtimes must name some of {', '.join(RUNTIME_CLASSES)}, not {sorted(unknown) or 'nothing'}")
