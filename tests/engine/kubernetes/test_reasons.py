"""Why a pod does not start or died: statuses as a Kubernetes 1.34 node reports them."""

from __future__ import annotations

import pytest

from sandboxes.engine.kubernetes import reasons

SCHEDULE_WAIT = 7.0


def obstacle(pod):
    return reasons.obstacle(pod, SCHEDULE_WAIT)


def pod(*, waiting=None, terminated=None, running=None, scheduled=None, deleted=False, **status):
    state = {key: value for key, value in (("waiting", waiting), ("terminated", terminated), ("running", running)) if value is not None}
    metadata = {"name": "m-1", "uid": "1"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})
    conditions = [{"type": "PodScheduled", **scheduled}] if scheduled else status.pop("conditions", [])
    statuses = {"containerStatuses": [{"name": "sandbox", "state": state}]} if state else {}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"image": "exec:1", "resources": {"limits": {"memory": "134217728"}}}]},
        "status": {"phase": "Pending", "conditions": conditions, **statuses, **status},
    }


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        ({"reason": "ErrImageNeverPull", "message": 'Container image "x" is not present with pull policy of Never'}, "not on the node"),
        ({"reason": "InvalidImageName"}, "not the name of an image"),
        ({"reason": "ErrImagePull", "message": "rpc error: failed to pull: exec:1: not found"}, "could not be pulled"),
        ({"reason": "CreateContainerConfigError", "message": "container has runAsNonRoot and image will run as root"}, "runAsNonRoot"),
    ],
)
def test_what_is_hopeless_at_once(waiting, words):
    found = obstacle(pod(waiting=waiting))
    assert found is not None
    assert words in found.text
    assert found.grace == 0


def test_a_registry_that_does_not_answer_gets_one_more_try():
    for reason in ("ErrImagePull", "ImagePullBackOff"):
        found = obstacle(pod(waiting={"reason": reason, "message": "dial tcp 10.0.0.1:443: connect: connection refused"}))
        assert found is not None
        assert 10 < found.grace < 60


def test_no_room():
    message = "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available."
    found = obstacle(pod(scheduled={"status": "False", "reason": "Unschedulable", "message": message}))
    assert found is not None
    assert "no node has room" in found.text
    assert "Insufficient memory" in found.text
    assert found.grace == SCHEDULE_WAIT


def test_volumes():
    def said(message):
        return obstacle(pod(scheduled={"status": "False", "reason": "Unschedulable", "message": message}))

    assert "does not exist" in said('persistentvolumeclaim "absent" not found').text
    unbound = said("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    assert "no disk yet" in unbound.text
    assert unbound.grace >= 30


@pytest.mark.parametrize(
    "fine",
    [
        pod(),
        pod(waiting={"reason": "ContainerCreating"}),
        pod(running={}, phase="Running"),
        pod(scheduled={"status": "True"}),
        pod(terminated={"reason": "Error", "exitCode": 143}, phase="Running"),  # why will be told in a moment
    ],
)
def test_nothing_is_wrong(fine):
    assert obstacle(fine) is None
    assert reasons.death(fine) is None


@pytest.mark.parametrize(
    ("dead", "words"),
    [
        (pod(terminated={"reason": "OOMKilled", "exitCode": 128}, phase="Running"), "ran out of memory (limit 128 MiB)"),
        (pod(terminated={"reason": "Error", "exitCode": 137}), "killed"),
        (pod(terminated={"reason": "Error", "exitCode": 3}), "exit code 3"),
        (pod(terminated={"reason": "Error", "exitCode": 128}), "its runtime was killed"),
        (pod(terminated={"reason": "Completed", "exitCode": 0}, phase="Succeeded"), "exit code 0"),
        (pod(terminated={"reason": "Error", "exitCode": 143}, phase="Failed", reason="Evicted"), "evicted"),
        (pod(terminated={"reason": "Error", "exitCode": 143}, phase="Failed"), "asked to end"),
        (pod(terminated={"reason": "StartError", "exitCode": 128, "message": 'exec: "sh": not found'}), "could not be started"),
        (pod(deleted=True, running={}), "somebody deleted"),
        (pod(phase="Failed", reason="Evicted", message="Usage of EmptyDir volume exceeds the limit"), "evicted it: Usage of EmptyDir"),
        (pod(phase="Failed", reason="OutOfmemory", message="Node didn't have enough resource: memory"), "enough resource"),
        (pod(phase="Failed", reason="DeadlineExceeded"), "longest life"),
        (pod(phase="Running", reason="NodeLost", message="Node n1 is unresponsive"), "node is gone"),
    ],
)
def test_deaths(dead, words):
    assert words in reasons.death(dead)


def test_an_eviction_by_the_cluster_is_told_from_a_deletion():
    conditions = [{"type": "DisruptionTarget", "status": "True", "message": "Taint manager: deleting due to NoExecute taint"}]
    assert "Taint manager" in reasons.death(pod(deleted=True, conditions=conditions))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('pods "m" is forbidden: exceeded quota: q, requested: pods=1, used: pods=8, limited: pods=8', "quota for sandboxes is used up"),
        ('pods "m" is forbidden: pod rejected: RuntimeClass "nope" not found', 'lacks its runtime: RuntimeClass "nope" not found'),
        ('pods "m" is forbidden: violates PodSecurity "restricted:latest": x', "Pod Security does not allow it"),
    ],
)
def test_refusals(said, words):
    assert words in reasons.refusal(said)


@pytest.mark.parametrize(
    ("text", "size"), [("48Mi", 48 << 20), ("128974848", 128974848), ("129M", 129_000_000), ("1Gi", 1 << 30), ("10Ki", 10240)]
)
def test_quantities(text: str, size: int):
    assert reasons.quantity(text) == size
