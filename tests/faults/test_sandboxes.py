"""A sandbox that dies or cannot start. Each ends in the right state and error, with nothing left behind."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.pods import execute
from harness.client import Api, Lease
from harness.limits import RUNTIMES
from harness.pods import Namespace, PodTraces
from harness.server import Deploy, Server
from harness.waiting import at_once, until
from terminal.client import Terminal

from sandboxes.engine.kubernetes.selftest import NEEDED

from .harm import under_commands

Harm = Callable[[Lease], None]
MISSING = "localhost/no-such-image:1"


@pytest.fixture(params=["somebody deletes its pod", "its guest is killed"])
def harm(request: pytest.FixtureRequest, traces: PodTraces) -> tuple[Harm, str]:
    """A death, and what is told of it. In gVisor the guest is a part of the sentry, the only process that the node sees."""
    space = traces.space
    if request.param == "somebody deletes its pod":
        return lambda lease: space.api.delete(f"{space.path}/pods/{lease.container}"), "somebody deleted its pod"
    return lambda lease: os.kill(traces.init_pid(lease.container), signal.SIGKILL), "was killed"


def in_error(lease: Lease, reason: str, traces: PodTraces) -> None:
    """It gets to ``error`` for ``reason``, and nothing is left."""
    body = until(lambda: (found := lease.status())["status"] == "error" and found)
    assert reason in body["error"]
    until(lambda: not [trace for trace in traces.of_sandboxes() if lease.container in trace])
    lease.api.refuses(409, "not_running", "POST", f"{lease.path}/exec", json={"argv": ["true"]})


def test_a_death_under_a_command(fresh: Callable[..., Lease], harm: tuple[Harm, str], traces: PodTraces) -> None:
    lease = fresh()
    (answer,) = under_commands([lease], lambda: harm[0](lease))
    assert (answer.status_code, answer.json()["code"] in ("exec_failed", "stopped")) == (502, True), answer.text
    in_error(lease, harm[1], traces)


def test_a_death_under_a_terminal(fresh: Callable[..., Lease], harm: tuple[Harm, str], traces: PodTraces) -> None:
    lease = fresh()
    with Terminal(lease) as terminal:
        terminal.plain()
        harm[0](lease)
        code, reason, _ = terminal.closed()
    assert (code, reason.startswith("the sandbox died: ")) == (4003, True), (code, reason)
    in_error(lease, harm[1], traces)


def test_guests_that_freeze(api: Api, traces: PodTraces) -> None:
    """To the cluster all is well: only their silence tells. In gVisor a command may stop its guest: the kernel beneath goes on."""
    leases = {runtime: api.create(runtime=runtime) for runtime in RUNTIMES}
    for runtime, lease in leases.items():
        if runtime == "gvisor":
            execute(traces.space.api, f"{traces.space.path}/pods/{lease.container}", "sh", "-c", "kill -STOP 1")
        else:
            os.kill(traces.init_pid(lease.container), signal.SIGSTOP)
    for lease in leases.values():
        in_error(lease, "has not answered for 30 s", traces)
        lease.end()


def test_the_memory_limit(fresh: Callable[..., Lease], runtime: str, traces: PodTraces) -> None:
    """A kernel that is shared takes the process. gVisor is one process, which is taken."""
    lease = fresh()
    hog = {"argv": ["python3", "-c", "x = bytearray(b'x') * (1 << 30)"]}
    answer = lease.api.post(f"{lease.path}/exec", hog)
    if runtime == "gvisor":
        assert (answer.status_code, answer.json()["code"]) == (502, "exec_failed"), answer.text
        in_error(lease, "it ran out of memory (limit 256 MiB)", traces)
    else:
        assert (answer.json()["exitCode"], answer.json()["signal"]) == (137, 9), answer.text
        assert lease.sh("echo healthy") == "healthy\n"


def not_started(server: Server, org: str, reason: str, body: dict[str, Any]) -> None:
    """A create fails for ``reason``, holds nothing, and is told in the list."""
    api = server.api(org)
    problem = api.refuses(503, "start_failed", "POST", "/sandboxes", json=body)
    assert reason in problem["detail"]
    (lease,) = api.get("/sandboxes").json()["sandboxes"]
    assert (lease["status"], reason in lease["error"]) == ("error", True), lease
    assert api.get("/org").json()["execInUse"] == 0
    name = Lease(api, lease["id"], lease).container
    until(lambda: not [trace for trace in server.traces.of_sandboxes() if name in trace])
    assert api.delete(f"/sandboxes/{lease['id']}", params={"purge": "1"}).status_code == 204


def test_an_image_that_does_not_exist(server: Server, runtime: str, second: Server) -> None:
    """The reason is told although another server sees the pod go, too."""
    org = f"image-{runtime}"
    server.key(org)  # makes the org
    server.manage("shell", "-c", f"from sandboxes.models import Org; Org.objects.filter(slug='{org}').update(images=['{MISSING}'])")
    not_started(server, org, f"the image {MISSING} could not be pulled", {"runtime": runtime, "image": MISSING})


def test_a_volume_that_never_gets_a_disk(deploy: Deploy) -> None:
    with deploy(SANDBOXHUB_STORAGE_CLASS="no-such-class", SANDBOXHUB_START_WAIT="120") as server:
        not_started(server, "acme", "its volume has no disk yet", {"class": "dev", "project": "p"})
        assert isinstance(server.traces, PodTraces)
        space = server.traces.space
        until(lambda: not space.list("persistentvolumeclaims"))


def test_a_server_whose_role_lacks_pods_exec_does_not_start(space: Namespace, deploy: Deploy, tmp_path: Path) -> None:
    needed = {resource: verbs for resource, verbs in NEEDED.items() if resource != "pods/exec"}
    account = space.allow(needed, f"no-exec-{secrets.token_hex(4)}", tmp_path)
    said = "may not create pods/exec, get pods/exec in namespace"
    with pytest.raises(AssertionError, match=said), deploy(KUBECONFIG=str(account), SANDBOXHUB_NAMESPACE=space.name):
        pass


def test_a_role_that_loses_pods_exec(deploy: Deploy) -> None:
    """What is connected goes on, nothing new starts; with the right back, all is well."""
    with deploy() as server:
        assert isinstance(server.traces, PodTraces)
        space = server.traces.space
        api = server.api("acme")
        lease = api.create()
        space.grant({resource: verbs for resource, verbs in NEEDED.items() if resource != "pods/exec"}, "engine")
        until(lambda: not space.may("engine", "get", "pods/exec"))
        problem = api.refuses(503, "start_failed", "POST", "/sandboxes", json={})
        assert "the engine's account may not exec into pods" in problem["detail"]
        assert lease.sh("echo well") == "well\n"
        space.grant(NEEDED, "engine")
        until(lambda: space.may("engine", "get", "pods/exec"))
        api.create().end()
        until(lambda: server.traces.of_sandboxes() == [f"pod {lease.container}"])


@pytest.fixture(scope="module")
def second(server: Server) -> Iterator[Server]:
    with server.replica().running() as other:
        yield other


# Many at once


def test_a_hundred_commands_at_once_in_one_sandbox(server: Server, fresh: Callable[..., Lease]) -> None:
    """As bare execs they wedge a gVisor pod for good."""
    lease = fresh()
    before = server.memory()
    assert at_once(100, lambda number: lease.sh(f"sleep 1; echo {number}")) == [f"{number}\n" for number in range(100)]
    assert server.memory() - before < 100 << 20
    assert lease.sh("echo well") == "well\n"


def test_two_hundred_commands_at_once_in_ten_sandboxes(server: Server) -> None:
    api = server.api("load")
    runtimes = ("gvisor", "runc")
    leases = at_once(10, lambda number: api.create(runtime=runtimes[number % 2]))
    before, files = server.memory(), server.files()
    said = at_once(200, lambda number: leases[number % 10].sh(f"sleep 1; echo {number}; head -c 100000 /dev/zero | tr '\\0' x"))
    assert [text.split("\n")[0] for text in said] == [str(number) for number in range(200)]
    assert {len(text.split("\n")[1]) for text in said} == {100_000}
    assert server.memory() - before < 200 << 20
    assert [lease.sh("echo well") for lease in leases] == ["well\n"] * 10
    until(lambda: server.files() <= files + 16)
    for lease in leases:
        lease.end()
