"""What must hold when many ask at once, and what happens by itself: the ceiling, one sandbox a project, expiry, death, restarts."""

from __future__ import annotations

import os
import secrets
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from harness.client import Lease, check_sandbox
from harness.limits import RUNTIMES
from harness.server import Deploy, Server
from harness.waiting import at_once, until


def test_the_ceiling_is_exact(server: Server, runtime: str) -> None:
    """40 at once, 16 allowed. Projects do not count."""
    api = server.api(f"ceiling-{runtime}")
    wanted = {"runtime": runtime}
    extra = api.create(**{"class": "dev", "project": "p", "runtime": "runc"})
    responses = at_once(40, lambda number: api.post("/sandboxes" if number % 2 else "/sandbox/lease", wanted))
    assert Counter(response.status_code in (200, 201) for response in responses) == {True: 16, False: 24}
    for response in responses:
        if response.status_code not in (200, 201):
            assert (response.status_code, response.json()["code"]) == (429, "ceiling")
    assert len({response.json()["id"] for response in responses if response.ok}) == 16
    org = api.get("/org").json()
    assert (org["execCeiling"], org["execInUse"], org["sandboxes"]) == (16, 16, 17)
    held = [sandbox["id"] for sandbox in api.get("/sandboxes").json()["sandboxes"] if sandbox["class"] == "exec"]
    assert api.delete(f"/sandboxes/{held[0]}").status_code == 204
    api.create(runtime="runc").end()
    at_once(15, lambda number: api.delete(f"/sandboxes/{held[number + 1]}"))
    extra.end()
    assert api.get("/org").json()["execInUse"] == 0


def test_one_sandbox_a_project(server: Server) -> None:
    """50 at once get one and the same."""
    api = server.api("acme")
    wanted = {"class": "dev", "project": f"p-{secrets.token_hex(6)}", "runtime": "gvisor"}
    responses = at_once(50, lambda number: api.post("/sandboxes" if number % 2 else "/sandbox/lease", wanted))
    assert {response.status_code for response in responses} == {200, 201}
    assert {response.json()["status"] for response in responses} == {"running"}
    (pk,) = {response.json()["id"] for response in responses}
    assert api.delete(f"/sandboxes/{pk}", params={"purge": "1"}).status_code == 204


def test_creates_and_deletes_of_a_project_at_once(server: Server) -> None:
    """Whoever comes gets a sandbox or a clean refusal, and at the end there is one at most."""
    api = server.api("acme")
    wanted = {"class": "dev", "project": f"p-{secrets.token_hex(6)}", "runtime": "runc"}

    def work(number: int) -> None:
        response = api.post("/sandboxes", wanted)
        assert response.status_code in (201, 409, 503), response.text
        if response.status_code == 201 and number % 2:
            assert api.delete(f"/sandboxes/{response.json()['id']}").status_code in (204, 404)

    at_once(12, work)
    left = api.get("/sandboxes", params={"project": wanted["project"]}).json()["sandboxes"]
    assert len(left) <= 1
    final = api.create(**wanted)
    final.end(purge=True)


def test_a_lease_expires(server: Server, fresh: Callable[..., Lease]) -> None:
    lease = fresh(ttlSec=5)  # a start takes less, also on a busy machine
    until(lambda: lease.api.get(lease.path).status_code == 404)
    until(lambda: not [trace for trace in server.traces.of_sandboxes() if lease.container in trace])


def test_a_lease_that_is_renewed_does_not_expire(fresh: Callable[..., Lease], runtime: str) -> None:
    lease = fresh(ttlSec=10)
    assert lease.api.post("/sandbox/lease", {"id": lease.id, "ttlSec": 300}).status_code == 200
    other = fresh(ttlSec=11)  # it would outlive the first
    until(lambda: other.api.get(other.path).status_code == 404)
    assert lease.exec("true")["exitCode"] == 0


def test_a_sandbox_that_dies(server: Server, fresh: Callable[..., Lease], runtime: str) -> None:
    lease = fresh(**{"class": "dev", "project": f"p-{secrets.token_hex(6)}"})
    lease.sh("mkfifo /tmp/began")
    answers = []

    def work(number: int) -> None:
        if number:
            answers.append(lease.api.post(f"{lease.path}/exec", {"command": "echo x >/tmp/began; sleep 89"}))
        else:
            assert lease.sh("cat /tmp/began") == "x\n"
            os.kill(server.traces.init_pid(lease.container), signal.SIGKILL)

    at_once(2, work)
    assert answers[0].status_code == 502, answers[0].text
    body = until(lambda: (found := lease.status())["status"] == "error" and found)
    check_sandbox(body)
    assert body["error"]
    assert "/" not in body["error"], "no path of the host"
    for method, path, options in (
        ("POST", f"{lease.path}/exec", {"json": {"argv": ["true"]}}),
        ("GET", f"{lease.path}/fs", {}),
        ("POST", lease.file("x"), {"data": b"x"}),
        ("POST", "/sandbox/run", {"json": {"id": lease.id, "argv": ["true"]}}),
        ("POST", "/sandbox/read", {"json": {"id": lease.id}}),
        ("POST", "/sandbox/write", {"json": {"id": lease.id, "path": "x"}}),
        ("POST", "/sandbox/stop", {"json": {"id": lease.id}}),
    ):
        problem = lease.api.refuses(409, "not_running", method, path, **options)
        assert "error" in problem["detail"]
    until(lambda: not [trace for trace in server.traces.of_sandboxes() if lease.container in trace])
    again = fresh(**{"class": "dev", "project": body["project"]})
    assert again.id != lease.id
    assert lease.status()["status"] == "error"
    lease.end()


def test_a_dead_exec_does_not_count(server: Server) -> None:
    api = server.api("dead")
    lease = api.create(runtime="runc")
    assert api.get("/org").json()["execInUse"] == 1
    os.kill(server.traces.init_pid(lease.container), signal.SIGKILL)
    until(lambda: lease.status()["status"] == "error")
    assert api.get("/org").json()["execInUse"] == 0
    assert api.post("/sandbox/lease", {"id": lease.id, "runtime": "runc"}).json()["id"] != lease.id
    lease.end()


def test_restart(deploy: Deploy) -> None:
    """What runs survives the server, serves again, and is still noticed when it dies or expires."""
    with deploy(SANDBOXHUB_REAPER="off") as server:
        api = server.api("acme")
        leases = [api.create(runtime=name, ttlSec=4000) for name in RUNTIMES] + [api.create(runtime="runc") for _ in range(2)]
        for lease in leases:
            lease.write("kept", lease.id.encode())
            lease.sh("sleep 88 >/dev/null 2>&1 &")
        expiring = api.create(runtime="runc", ttlSec=1)
        server.stop()
        os.kill(server.traces.init_pid(leases[2].container), signal.SIGKILL)
        until(lambda: "1 leases ended" in server.manage("reap", "--once"))
        server.start()
        for lease in leases[:2]:
            assert lease.read("kept") == lease.id.encode()
            assert lease.sh("echo alive") == "alive\n"
            assert lease.status() | {"lastUsedAt": 0} == lease.body | {"lastUsedAt": 0}
        assert leases[2].status()["status"] == "error"
        api.refuses(404, "not_found", "GET", expiring.path)
        os.kill(server.traces.init_pid(leases[3].container), signal.SIGKILL)
        server.manage("reap", "--once")
        until(lambda: leases[3].status()["status"] == "error")


def test_a_stop_lets_go_of_commands(deploy: Deploy) -> None:
    """SIGTERM in the middle of a command: its caller is told, with the output so far, and nothing of it is left."""
    with deploy(SANDBOXHUB_RUNTIMES="runc", SANDBOXHUB_DRAIN="1") as server:
        lease = server.api("acme").create()
        lease.sh("mkfifo /tmp/began")

        def work(number: int) -> None:
            if number:
                body = {"command": "echo so far; echo x >/tmp/began; sleep 87"}
                problem = lease.api.refuses(503, "draining", "POST", f"{lease.path}/exec", json=body)
                assert problem["stdout"] == "so far\n"
            else:
                assert lease.sh("cat /tmp/began") == "x\n"
                server.stop()

        at_once(2, work)
        server.start()
        assert "sleep 87" not in lease.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")


def test_a_create_need_not_wait(deploy: Deploy) -> None:
    with deploy(SANDBOXHUB_RUNTIMES="runc", SANDBOXHUB_START_WAIT="0") as server:
        api = server.api("acme")
        response = api.post("/sandboxes", {"class": "dev", "project": "p"})
        assert response.status_code == 201
        body = response.json()
        check_sandbox(body)
        lease = Lease(api, body["id"], body)
        until(lambda: lease.status()["status"] == "running")
        assert lease.sh("echo well") == "well\n"


@pytest.mark.parametrize("name", ["SANDBOXHUB_MEMROY", "SANDBOXHUB_MAX_BODY"])
def test_a_bad_setting_is_refused_by_name(deploy: Deploy, name: str) -> None:
    with pytest.raises(AssertionError, match=name), deploy(**{name: "nonsense"}):
        pass
