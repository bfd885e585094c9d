"""Parts of the cluster are away, or it is full. Nothing else may run on that cluster at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest
from cluster.faults import Node
from cluster.objects import NODE
from cluster.pods import restricted_pod
from harness.client import Lease
from harness.limits import RUNTIMES
from harness.pods import Namespace, PodTraces
from harness.server import Deploy, Server
from harness.waiting import until
from terminal.client import Terminal

from .harm import under_commands


@pytest.fixture
def alone(deploy: Deploy) -> Iterator[Server]:
    """A server of the test's own."""
    with deploy(SANDBOXHUB_REAP_INTERVAL="0.5", SANDBOXHUB_SCHEDULE_WAIT="60") as server:
        yield server


@pytest.fixture
def leases(alone: Server) -> list[Lease]:
    """One of each runtime, with a file."""
    found = [alone.api("acme").create(runtime=runtime) for runtime in RUNTIMES]
    for lease in found:
        lease.write("kept", b"kept")
    return found


def serves(lease: Lease) -> bool:
    """As before, as if nothing had happened."""
    answer = lease.api.post(f"{lease.path}/exec", {"argv": ["cat", "kept"]})
    assert lease.status()["status"] == "running"
    return answer.status_code == 200 and answer.json()["stdout"] == "kept"


def only(leases: list[Lease], server: Server) -> bool:
    """Nothing is left of any other sandbox."""
    return {f"pod {lease.container}" for lease in leases} == set(server.traces.of_sandboxes())


def test_the_kubelet_is_stopped(alone: Server, leases: list[Lease], node: Node) -> None:
    """What was asked is of unknown outcome. What runs goes on, what starts and ends waits, and nobody is shown addresses of the cluster."""
    api = alone.api("acme")
    doomed = api.create(runtime="runc")
    started: list[dict[str, object]] = []
    with ExitStack() as until_it_is_back, Terminal(leases[0]) as terminal:
        terminal.plain()
        answers = under_commands(leases, lambda: until_it_is_back.enter_context(node.stopped("kubelet")))
        assert [answer.json()["code"] for answer in answers] == ["exec_failed"] * 2
        assert terminal.closed()[0] == 1011
        for lease in leases:
            problem = api.refuses(502, "engine_failed", "POST", f"{lease.path}/exec", json={"argv": ["true"]})
            assert problem["detail"] == "The node of the sandbox cannot be reached."
        starting = Thread(target=lambda: started.append(api.create(runtime="runc").body))
        starting.start()
        until(lambda: "pending" in [sandbox["status"] for sandbox in api.get("/sandboxes").json()["sandboxes"]])
        doomed.end()
        api.refuses(404, "not_found", "GET", doomed.path)
        assert f"pod {doomed.container}" in alone.traces.of_sandboxes()
    for lease in leases:
        until(lambda lease=lease: serves(lease), seconds=120)  # type: ignore[misc]
    starting.join()
    (body,) = started
    until(lambda: only([*leases, Lease(api, str(body["id"]), body)], alone))


def test_the_kubelet_hangs(alone: Server, leases: list[Lease], node: Node) -> None:
    """Commands that run meanwhile are told of later, and complete. What was ended is gone when the node can say so.

    A guest that is silent for as long as this would be dead; here the node is.
    """
    api = alone.api("acme")
    doomed, other = [api.create(runtime="runc") for _ in range(2)]

    def hang() -> None:
        with node.frozen("kubelet"):
            doomed.end()
            api.refuses(502, "exec_failed", "POST", f"{other.path}/exec", json={"argv": ["true"], "timeoutSec": 90})
            assert [lease.status()["status"] for lease in [*leases, other]] == ["running"] * 3
            assert f"pod {doomed.container}" in alone.traces.of_sandboxes()

    answers = under_commands(leases, hang, "sleep 1; echo late")
    assert [answer.json()["stdout"] for answer in answers] == ["late\n"] * 2
    for lease in leases:
        until(lambda lease=lease: serves(lease))  # type: ignore[misc]
    assert other.sh("echo well") == "well\n"
    until(lambda: only([*leases, other], alone), seconds=180)


def test_the_api_server_is_restarted(alone: Server, leases: list[Lease], node: Node) -> None:
    api = alone.api("acme")
    doomed = api.create(runtime="runc")
    away = "The API server of the cluster cannot be reached."
    with ExitStack() as until_it_is_back, Terminal(leases[0]) as terminal:
        terminal.plain()
        answers = under_commands(leases, lambda: until_it_is_back.enter_context(node.stopped("kube-apiserver")))
        assert [answer.json()["code"] for answer in answers] == ["exec_failed"] * 2
        assert terminal.closed()[0] == 1011
        with ThreadPoolExecutor() as pool:  # each tries for some seconds to reach it
            run = pool.submit(api.refuses, 502, "engine_failed", "POST", f"{leases[0].path}/exec", json={"argv": ["true"]})
            create = pool.submit(api.refuses, 503, "start_failed", "POST", "/sandboxes", json={})
            pool.submit(doomed.end).result()
        assert run.result()["detail"] == away
        assert away in create.result()["detail"]
    for lease in leases:
        until(lambda lease=lease: serves(lease), seconds=120)  # type: ignore[misc]
    with Terminal(leases[0]) as terminal:
        assert terminal.plain().run("cat kept") == b"kept"
    # The kubelet answers execs at once, but lists its pods again only after its own back-off, of a minute at most.
    until(lambda: only(leases, alone), seconds=180)
    api.create().end()


def test_a_full_node(deploy: Deploy) -> None:
    with deploy(SANDBOXHUB_SCHEDULE_WAIT="1") as server, hog(server) as space:
        problem = server.api("acme").refuses(503, "start_failed", "POST", "/sandboxes", json={})
        assert "no node has room for it: " in problem["detail"]
        assert "Insufficient cpu" in problem["detail"]
        until(lambda: server.traces.of_sandboxes() == ["pod hog"])
        space.api.delete(f"{space.path}/pods/hog")
        until(lambda: server.traces.of_sandboxes() == [])
        server.api("acme").create().end()


def test_a_node_that_gets_room(alone: Server) -> None:
    with ThreadPoolExecutor() as pool, hog(alone) as space:
        starting = pool.submit(alone.api("acme").create)
        until(lambda: len(waiting(space)) == 1)
        space.api.delete(f"{space.path}/pods/hog")
        starting.result().end()


def waiting(space: Namespace) -> list[str]:
    """The pods that no node has room for."""
    return [
        pod["metadata"]["name"]
        for pod in space.list("pods")
        if any(condition.get("reason") == "Unschedulable" for condition in pod["status"].get("conditions", []))
    ]


@contextmanager
def hog(server: Server) -> Iterator[Namespace]:
    """A pod, beside those of ``server``, that has all of the node's processors that no other pod has."""
    assert isinstance(server.traces, PodTraces)
    space = server.traces.space
    free = milli(space.api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["cpu"])
    for pod in space.api.get("/api/v1/pods")["items"]:
        if pod["status"]["phase"] in ("Pending", "Running"):
            free -= sum(milli(container["resources"].get("requests", {}).get("cpu", "0")) for container in pod["spec"]["containers"])
    body = restricted_pod("hog", "runc")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{free}m"}}
    space.api.create(f"{space.path}/pods", body)
    until(lambda: space.pod("hog")["spec"].get("nodeName"))
    yield space
    if space.exists("pods/hog"):
        space.api.delete(f"{space.path}/pods/hog")
    until(lambda: not space.exists("pods/hog"))


def milli(cpus: str) -> int:
    return int(cpus[:-1]) if cpus.endswith("m") else int(float(cpus) * 1000)
