"""Create, list, get, delete, and the verbs lease and end."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.client import Api, Lease, check_sandbox
from harness.server import Server
from harness.waiting import at_once, until

DAY = 86_400


@pytest.fixture
def project() -> str:
    return f"p-{secrets.token_hex(6)}"


@pytest.fixture
def taken(api: Api) -> Iterator[list[str]]:
    """Ids that a test took and that are ended behind it."""
    ids: list[str] = []
    yield ids
    for pk in ids:
        assert api.delete(f"/sandboxes/{pk}", params={"purge": "1"}).status_code in (204, 404)


def created(api: Api, taken: list[str], **members: Any) -> dict[str, Any]:
    response = api.post("/sandbox", members)
    assert response.status_code == 201, response.text
    body: dict[str, Any] = response.json()
    taken.append(body["id"])
    check_sandbox(body)
    return body


def leased(api: Api, taken: list[str], **members: Any) -> dict[str, Any]:
    response = api.post("/sandbox/lease", members)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    taken.append(body["id"])
    assert set(body) == {"id", "class", "runtime", "status", "workdir"}
    assert all(type(value) is str for value in body.values())
    return body


def test_an_empty_body_leases_an_exec(api: Api, taken: list[str], image: str) -> None:
    before = int(time.time())
    response = api.post("/sandboxes")
    assert response.status_code == 201, response.text
    body = response.json()
    taken.append(body["id"])
    check_sandbox(body)
    assert re.fullmatch("m_[0-9a-f]{24}", body["id"])
    assert (body["class"], body["status"], body["org"], body["runtime"], body["image"]) == ("exec", "running", "acme", "gvisor", image)
    assert before <= body["createdAt"] <= int(time.time())
    assert body["expiresAt"] == body["createdAt"] + 900
    assert not {"project", "volume", "error", "connectedAt"} & set(body)
    for prefix in ("sandbox", "sandboxes"):
        assert api.get(f"/{prefix}/{body['id']}").json() == body


def test_runtime(fresh: Callable[..., Lease], runtime: str) -> None:
    lease = fresh()
    assert lease.status()["runtime"] == runtime
    assert ("gVisor" in lease.sh("dmesg 2>/dev/null || true")) == (runtime == "gvisor")


@pytest.mark.parametrize(("asked", "granted"), [(None, 900), (0, 900), (-1, 900), (60, 60), (DAY, DAY), (DAY + 1, DAY), (2**63 - 1, DAY)])
def test_ttl(api: Api, taken: list[str], asked: int | None, granted: int) -> None:
    body = created(api, taken, runtime="runc", ttlSec=asked)
    assert body["expiresAt"] - body["createdAt"] == granted


def test_project_lease(api: Api, taken: list[str], project: str, runtime: str) -> None:
    body = created(api, taken, **{"class": " Dev ", "project": f" {project.upper()}_", "runtime": f" {runtime} "})
    assert (body["class"], body["project"], body["runtime"]) == ("dev", project, runtime)
    assert body["expiresAt"] - body["createdAt"] == 14_400
    assert body["volume"].startswith(f"m-acme-{project}"[:20])
    assert len(body["volume"]) <= 63
    again = created(api, taken, **{"class": "dev", "project": project})
    assert again == body | {"lastUsedAt": again["lastUsedAt"]}


def test_a_resumed_lease_is_never_shortened(api: Api, taken: list[str], project: str) -> None:
    wanted = {"class": "dev", "project": project, "runtime": "runc"}
    first = created(api, taken, **wanted, ttlSec=1000)
    ends = [created(api, taken, **wanted, ttlSec=asked)["expiresAt"] - first["expiresAt"] for asked in (None, 0, 10, 1000)]
    assert all(0 <= more < 120 for more in ends)
    assert ends[:3] == [0, 0, 0]
    longer = created(api, taken, **wanted, ttlSec=5000)["expiresAt"]
    assert 4000 <= longer - first["expiresAt"] < 4120
    assert created(api, taken, **wanted, ttlSec=10 * DAY)["expiresAt"] == first["createdAt"] + DAY


def test_lease_by_id(api: Api, taken: list[str], server: Server) -> None:
    first = leased(api, taken, runtime="runc", ttlSec=500)
    assert (first["class"], first["status"], first["workdir"]) == ("exec", "running", "/mnt/data")
    expires = api.get(f"/sandbox/{first['id']}").json()["expiresAt"]
    assert leased(api, taken, id=first["id"]) == first
    assert api.get(f"/sandbox/{first['id']}").json()["expiresAt"] == expires
    assert leased(api, taken, id=first["id"], ttlSec=5, runtime="gvisor") == first
    assert api.get(f"/sandbox/{first['id']}").json()["expiresAt"] == expires
    leased(api, taken, id=first["id"], ttlSec=5000)
    assert api.get(f"/sandbox/{first['id']}").json()["expiresAt"] >= expires + 4000


def test_lease_of_an_id_that_is_not_held_is_a_new_one(api: Api, server: Server, taken: list[str]) -> None:
    other = server.api("rival").create(runtime="runc")
    for pk in (other.id, "m_000000000000000000000000", "x", ""):
        body = leased(api, taken, id=pk, runtime="runc")
        assert body["id"] != pk
        assert re.fullmatch("m_[0-9a-f]{24}", body["id"])
    other.end()


def test_lease_of_a_project(api: Api, taken: list[str], project: str) -> None:
    first = leased(api, taken, **{"class": "desktop", "project": project, "runtime": "runc", "disk": True})
    assert (first["class"], first["workdir"]) == ("desktop", "/work")
    assert leased(api, taken, **{"class": "desktop", "project": project}) == first
    problem = api.refuses(409, "project_busy", "POST", "/sandbox/lease", json={"class": "dev", "project": project})
    assert first["id"] in problem["detail"]
    api.refuses(409, "project_busy", "POST", "/sandboxes", json={"class": "dev", "project": project})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"class": "android"}, "invalid_class"),
        ({"class": "x"}, "invalid_class"),
        ({"class": "dev"}, "project_required"),
        ({"class": "dev", "project": " !? "}, "project_required"),
        ({"class": "desktop", "project": ""}, "project_required"),
        ({"class": "exec", "project": "p"}, "project_not_allowed"),
        ({"project": "p"}, "project_not_allowed"),
        ({"runtime": "visor"}, "runtime_refused"),
        ({"runtime": "GVISOR"}, "runtime_refused"),
        ({"runtime": "kata-clh"}, "runtime_refused"),
        ({"image": "debian:12"}, "image_refused"),
        ({"image": "../../etc"}, "image_refused"),
    ],
)
def test_what_is_refused(api: Api, body: dict[str, Any], code: str) -> None:
    api.refuses(400, code, "POST", "/sandboxes", json=body)
    if "image" not in body:
        api.refuses(400, code, "POST", "/sandbox/lease", json=body)


def test_another_cluster_is_not_found(api: Api) -> None:
    for path in ("/sandboxes", "/sandbox/lease"):
        api.refuses(404, "not_found", "POST", path, json={"cluster": "elsewhere"})


def test_the_image_that_runs_may_be_named(api: Api, taken: list[str], image: str) -> None:
    assert created(api, taken, image=image, kind="anything", cluster="", runtime="runc", unknown=[1])["image"] == image


def test_list(server: Server) -> None:
    """Newest first, filtered, and page by page."""
    api = server.api("lists")
    assert api.get("/sandbox").json() == {"sandboxes": []}
    exec_ids = [api.create(runtime="runc").id for _ in range(3)]
    dev = api.create(**{"class": "dev", "project": "a-b", "runtime": "runc"}).id
    newest_first = [dev, *reversed(exec_ids)]

    def ids(**query: Any) -> list[str]:
        response = api.get("/sandboxes", params=query)
        assert response.status_code == 200, response.text
        body = response.json()
        assert set(body) == {"sandboxes"}
        for sandbox in body["sandboxes"]:
            check_sandbox(sandbox)
        return [sandbox["id"] for sandbox in body["sandboxes"]]

    assert ids() == ids(project="", status="") == ids(status=" running ") == newest_first
    assert ids(project="a-b") == ids(project=" A_B ") == ids(project="a b", status="running") == [dev]
    for query in ({"status": "pending"}, {"status": "ending"}, {"status": "Running"}, {"project": "b"}, {"project": "!"}):
        assert ids(**query) == [], query
    pages: list[list[str]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        body = api.get("/sandbox", params=query).json()
        pages.append([sandbox["id"] for sandbox in body["sandboxes"]])
        if "next" not in body:
            break
        query["cursor"] = body["next"]
    assert pages == [newest_first[:2], newest_first[2:]]
    for limit in ("0", "201", "-1", "x", "1.5", "9" * 30):
        api.refuses(400, "invalid_body", "GET", "/sandbox", params={"limit": limit})
    for cursor in ("x", "1-m_0", "99999999999999999-m_000000000000000000000000", "-1-m_000000000000000000000000"):
        response = api.get("/sandbox", params={"cursor": cursor})
        assert response.status_code in (200, 400), response.text
    for pk in newest_first:
        assert api.delete(f"/sandbox/{pk}").status_code == 204
    assert ids() == []


def test_delete(fresh: Callable[..., Lease], server: Server, runtime: str) -> None:
    lease = fresh()
    lease.sh("sleep 91 & setsid sleep 91 &")
    pid = server.traces.init_pid(lease.container)
    lease.end()
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/exec"), ("GET", "/fs")):
        lease.api.refuses(404, "not_found", method, f"{lease.path}{path}", **({"json": {"argv": ["true"]}} if path == "/exec" else {}))
    until(lambda: not [trace for trace in server.traces.of_sandboxes() if lease.container in trace])
    assert lease.container not in str(server.traces.processes().get(pid, ""))


def test_end(fresh: Callable[..., Lease]) -> None:
    lease = fresh()
    response = lease.api.post("/sandbox/end", {"id": lease.id})
    assert (response.status_code, response.content) == (204, b"")
    lease.api.refuses(404, "not_found", "POST", "/sandbox/end", json={"id": lease.id})
    lease.api.refuses(404, "not_found", "POST", "/sandbox/end")


def test_deletes_at_once(fresh: Callable[..., Lease]) -> None:
    lease = fresh()
    codes = at_once(8, lambda _: lease.api.delete(lease.path).status_code)
    assert sorted(codes) == [204] + [404] * 7


def test_end_interrupts_what_runs(fresh: Callable[..., Lease]) -> None:
    lease = fresh()
    lease.sh("mkfifo /tmp/began")

    def work(number: int) -> int:
        if number:
            return lease.api.post(f"{lease.path}/exec", {"command": "echo x >/tmp/began; sleep 90"}).status_code
        assert lease.sh("cat /tmp/began") == "x\n"
        lease.end()
        return 0

    assert at_once(2, work) in ([0, 502], [0, 404])


def test_a_volume_outlives_its_lease(api: Api, project: str, runtime: str, taken: list[str]) -> None:
    wanted = {"class": "dev", "project": project, "runtime": runtime}
    first = api.create(**wanted)
    first.write("kept", b"data")
    for purge in ("0", "true", "yes", ""):
        api.delete(first.path, params={"purge": purge})
        second = api.create(**wanted)
        taken.append(second.id)
        assert second.id != first.id
        assert second.body["volume"] == first.body["volume"]
        assert second.read("kept") == b"data"
        first = second
    response = api.post("/sandbox/end", {"id": second.id, "purge": True})
    assert response.status_code == 204
    assert first.body["volume"] not in [volume["name"] for volume in api.get("/volumes").json()["volumes"]]
    third = api.create(**wanted)
    taken.append(third.id)
    third.api.refuses(404, "not_found", "GET", third.file("kept"))


def test_a_volume_is_one_for_all_runtimes(api: Api, project: str, taken: list[str]) -> None:
    first = api.create(**{"class": "dev", "project": project, "runtime": "runc"})
    first.write("kept", b"data")
    first.end()
    second = api.create(**{"class": "desktop", "project": project, "runtime": "gvisor"})
    taken.append(second.id)
    assert second.read("kept") == b"data"
    second.write("kept", b"more")


def test_last_use(api: Api, taken: list[str]) -> None:
    lease = Lease(api, created(api, taken, runtime="runc")["id"], {})
    before = lease.status()["lastUsedAt"]
    until(lambda: lease.exec("true") and lease.status()["lastUsedAt"] > before)
    between = lease.status()["lastUsedAt"]
    until(lambda: lease.read("") and lease.status()["lastUsedAt"] > between)


def test_idempotency_key(api: Api, taken: list[str]) -> None:
    key = {"Idempotency-Key": secrets.token_hex(8)}
    responses = at_once(6, lambda _: api.post("/sandboxes", {"runtime": "runc"}, headers=key))
    assert {response.status_code for response in responses} == {201}
    (pk,) = {response.json()["id"] for response in responses}
    taken.append(pk)
    response = api.post("/sandbox/lease", {"runtime": "runc"}, headers=key)
    assert (response.status_code, response.json()["id"]) == (200, pk)
    other = api.post("/sandboxes", {"runtime": "runc"}, headers={"Idempotency-Key": secrets.token_hex(8)}).json()["id"]
    taken.append(other)
    assert other != pk


def test_an_idempotency_key_belongs_to_its_org(api: Api, server: Server, taken: list[str]) -> None:
    key = {"Idempotency-Key": "the same for both"}
    api.refuses(400, "invalid_body", "POST", "/sandboxes", json={}, headers=key)
    key = {"Idempotency-Key": "the-same-for-both"}
    rival = server.api("rival")
    ours, theirs = (who.post("/sandboxes", {"runtime": "runc"}, headers=key).json()["id"] for who in (api, rival))
    taken.append(ours)
    assert ours != theirs
    assert rival.delete(f"/sandboxes/{theirs}").status_code == 204


@pytest.mark.parametrize("key", ["", "é", "x" * 256, "a b"])
def test_idempotency_keys_that_are_none(api: Api, key: str) -> None:
    response = api.request("POST", "/sandboxes", json={}, headers={"Idempotency-Key": key.encode()})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_body")
