"""/v1/org, /v1/projects and /v1/volumes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import pytest
from harness.client import Api, Lease
from harness.server import Server
from harness.waiting import at_once, until


def test_org(server: Server, image: str) -> None:
    api = server.api("fresh-org")
    assert api.get("/org").json() == {
        "org": "fresh-org",
        "runtimes": ["gvisor", "runc"],
        "images": [image],
        "execCeiling": 16,
        "execInUse": 0,
        "sandboxes": 0,
        "projects": 0,
        "volumes": 0,
    }
    lease = api.create(**{"class": "dev", "project": "p", "runtime": "runc"})
    other = api.create(runtime="runc")
    org = api.get("/org").json()
    assert [org[name] for name in ("execInUse", "sandboxes", "projects", "volumes")] == [1, 2, 1, 1]
    lease.end(purge=True)
    other.end()
    org = api.get("/org").json()
    assert [org[name] for name in ("execInUse", "sandboxes", "projects", "volumes")] == [0, 0, 1, 0]


def test_a_project_by_hand(api: Api) -> None:
    name = f"p-{secrets.token_hex(6)}"
    before = int(time.time())
    response = api.post("/projects", {"project": f"{name.upper()} "})
    assert response.status_code == 201
    body = response.json()
    assert (body["project"], set(body)) == (name, {"project", "createdAt"})
    assert before <= body["createdAt"] <= time.time()
    assert api.post("/projects", {"project": name}).json() == body == api.get(f"/projects/{name}").json()
    assert body in api.get("/projects").json()["projects"]
    response = api.delete(f"/projects/{name}")
    assert (response.status_code, response.content) == (204, b"")
    for method in ("GET", "DELETE"):
        api.refuses(404, "not_found", method, f"/projects/{name}")


@pytest.mark.parametrize("name", ["", " ", "!!!", "é", None])
def test_projects_need_a_name(api: Api, name: str | None) -> None:
    api.refuses(400, "project_required", "POST", "/projects", json={"project": name})


def test_projects_at_once(api: Api) -> None:
    name = f"p-{secrets.token_hex(6)}"
    responses = at_once(12, lambda _: api.post("/projects", {"project": name}))
    assert {response.status_code for response in responses} == {201}
    assert api.delete(f"/projects/{name}").status_code == 204


def test_project_and_volume_in_use(api: Api, fresh: Callable[..., Lease]) -> None:
    name = f"p-{secrets.token_hex(6)}"
    lease = fresh(**{"class": "dev", "project": name})
    volume = lease.body["volume"]
    project = api.get(f"/projects/{name}").json()
    assert (project["sandbox"], project["volume"]) == (lease.id, volume)
    shown = api.get(f"/volumes/{volume}").json()
    assert set(shown) == {"name", "project", "size", "createdAt", "lastLeasedAt"}
    assert (shown["name"], shown["project"], shown["size"]) == (volume, name, 32 << 20)
    assert shown in api.get("/volumes").json()["volumes"]
    api.refuses(409, "conflict", "DELETE", f"/volumes/{volume}")
    api.refuses(409, "conflict", "DELETE", f"/projects/{name}")
    lease.end()
    project = until(lambda: "sandbox" not in (found := api.get(f"/projects/{name}").json()) and found)
    assert project["volume"] == volume
    api.refuses(409, "conflict", "DELETE", f"/projects/{name}")
    assert api.delete(f"/volumes/{volume}").status_code == 204
    api.refuses(404, "not_found", "GET", f"/volumes/{volume}")
    api.refuses(404, "not_found", "DELETE", f"/volumes/{volume}")
    assert api.delete(f"/projects/{name}").status_code == 204
    again = fresh(**{"class": "dev", "project": name})
    assert again.read("") == b"\n"


def test_the_data_of_a_deleted_volume_are_gone(api: Api, server: Server, fresh: Callable[..., Lease]) -> None:
    name = f"p-{secrets.token_hex(6)}"
    lease = fresh(**{"class": "dev", "project": name})
    assert server.traces.of_volume(lease.body["volume"])
    lease.end()
    until(lambda: api.delete(f"/volumes/{lease.body['volume']}").status_code == 204)
    assert not server.traces.of_volume(lease.body["volume"])
