"""Why a pod does not start, and why it died, in plain words. Pure: everything needed is in the pod's own status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandboxes.engine.kubernetes.config import CONTAINER, LABEL_INSTANCE

Pod = Mapping[str, Any]

#: Seconds that an obstacle may last before the start counts as failed.
_AT_ONCE = 0.0
_PULL_GRACE = 15.0  # one more try of the kubelet's
_CLAIM_GRACE = 2.0  # the scheduler may hear of a new claim a little later
_VOLUME_GRACE = 60.0  # a driver makes the disk meanwhile
_MISSING_IMAGE = ("not found", "manifest unknown", "unauthorized", "denied", "forbidden", "does not exist", "no such host")
#: The exit code of a guest that got SIGTERM.
_ASKED_TO_END = 143
#: The exit code of a container whose runtime is not there any more to tell.
_RUNTIME_LOST = 128
_OUT_OF_MEMORY = "OOMKilled"


@dataclass(frozen=True)
class Obstacle:
    """Something that keeps a pod from starting. ``text`` is a clause without a full stop."""

    text: str
    grace: float  #: seconds


def name_of(pod: Pod) -> str:
    return str(pod["metadata"]["name"])


def uid_of(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def instance_of(thing: Pod) -> str:
    return str(thing["metadata"].get("labels", {}).get(LABEL_INSTANCE, ""))


def is_placed(pod: Pod) -> bool:
    """It has a node."""
    return bool(pod["spec"].get("nodeName"))


def node_address(pod: Pod) -> str:
    """Empty until its kubelet has said it, which may be after the first exec has worked."""
    return str(pod.get("status", {}).get("hostIP", ""))


def is_up(pod: Pod) -> bool:
    """Its container runs, as far as the cluster knows."""
    return "running" in _container(pod).get("state", {})


def obstacle(pod: Pod, schedule_wait: float) -> Obstacle | None:
    """What keeps ``pod``, which is not up yet, from starting; None while all goes well. ``schedule_wait`` is how long room may take."""
    waiting = _container(pod).get("state", {}).get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    image = pod["spec"]["containers"][0]["image"]
    if reason == "InvalidImageName":
        return Obstacle(f"{image!r} is not the name of an image", _AT_ONCE)
    if reason == "ErrImageNeverPull":
        return Obstacle(f"the image {image} is not on the node", _AT_ONCE)
    if reason in ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"):
        missing = any(words in message.lower() for words in _MISSING_IMAGE)
        return Obstacle(f"the image {image} could not be pulled{_because(message)}", _AT_ONCE if missing else _PULL_GRACE)
    if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"):
        return Obstacle(f"the container could not be made{_because(message)}", _AT_ONCE)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") in ("Unschedulable", "SchedulerError"):
        why = scheduled.get("message", "")
        if "not found" in why and "persistentvolumeclaim" in why:
            return Obstacle("its volume does not exist", _CLAIM_GRACE)
        if "PersistentVolumeClaim" in why or "persistent volume" in why.lower():
            return Obstacle(f"its volume has no disk yet{_because(why)}", _VOLUME_GRACE)
        return Obstacle(f"no node has room for it{_because(why)}", schedule_wait)
    return None


def refusal(message: str) -> str:
    """Why the cluster does not take a pod, as a sentence, from what the API server said."""
    line = message.strip().split("\n")[0].rstrip(".")
    if "exceeded quota" in line:
        return "the cluster's quota for sandboxes is used up."
    if "RuntimeClass" in line and "not found" in line:
        return f"the cluster lacks its runtime: {line[line.index('RuntimeClass') :]}."
    if "violates PodSecurity" in line:
        return f"the namespace's Pod Security does not allow it: {line[:300]}."
    return f"the cluster refused it: {line[:300]}."


def death(pod: Pod) -> str | None:
    """Why ``pod`` is dead or dying; None while it lives or may still come up."""
    status = pod.get("status", {})
    terminated = _container(pod).get("state", {}).get("terminated")
    if status.get("reason") == "Evicted":
        return f"its node evicted it{_because(status.get('message', ''))}"
    if terminated is not None and terminated.get("reason") == _OUT_OF_MEMORY:
        return f"it ran out of memory (limit {_bytes(_memory_limit(pod))})"
    if pod["metadata"].get("deletionTimestamp"):
        disruption = _condition(pod, "DisruptionTarget")
        if disruption.get("status") == "True":
            return f"the cluster removed it{_because(disruption.get('message', ''))}"
        return "somebody deleted its pod"
    if status.get("reason") in ("NodeLost", "NodeShutdown", "Terminated"):
        return f"its node is gone{_because(status.get('message', ''))}"
    if status.get("reason") == "DeadlineExceeded":
        return "it reached the longest life of a sandbox"
    ended = status.get("phase") in ("Failed", "Succeeded")
    if terminated is not None and (ended or terminated.get("exitCode") != _ASKED_TO_END):
        return _ending(terminated)
    # Why a node asked it to end, it says a moment later, with the phase.
    if ended:
        return f"its pod has ended{_because(status.get('message') or status.get('reason') or '')}"
    return None


def _ending(terminated: Mapping[str, Any]) -> str:
    code, message = terminated.get("exitCode"), terminated.get("message", "")
    if terminated.get("reason") == "StartError":
        return f"its first process could not be started{_because(message)}"
    if code == 137 or terminated.get("signal") == 9:
        return "its first process was killed"
    if code == _ASKED_TO_END:
        return "it was asked to end from inside, or by its node"
    if code == _RUNTIME_LOST:
        return "its runtime was killed"
    return f"its first process ended with exit code {code}{_because(message)}"


def _container(pod: Pod) -> Mapping[str, Any]:
    for status in pod.get("status", {}).get("containerStatuses", ()):
        if status.get("name") == CONTAINER:
            found: Mapping[str, Any] = status
            return found
    return {}


def _condition(pod: Pod, kind: str) -> Mapping[str, Any]:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition.get("type") == kind:
            found: Mapping[str, Any] = condition
            return found
    return {}


def _because(message: str) -> str:
    """The first line of ``message``, bounded, as the end of a clause."""
    line = message.strip().split("\n")[0].rstrip(".")
    return f": {line[:300]}" if line else ""


def _memory_limit(pod: Pod) -> int:
    return quantity(pod["spec"]["containers"][0]["resources"]["limits"]["memory"])


_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def quantity(text: str) -> int:
    """A whole number of bytes as Kubernetes writes it: ``128974848``, ``129M``, ``123Mi``."""
    digits = text.rstrip("KkMGTi")
    return int(float(digits) * _UNITS[text[len(digits) :]])


def _bytes(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
