"""SIGKILL of the server in the middle of everything, then a restart: nothing is lost, nothing is left over."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import requests
from harness.client import Api, Lease
from harness.server import Deploy, Server
from harness.waiting import until

# How far the requests get before the blow: from the first row written to the sandbox all but up.
MOMENTS = (0.03, 0.08, 0.15, 0.25, 0.4)


@pytest.fixture
def crashing(deploy: Deploy) -> Iterator[Server]:
    settings = {"SANDBOXHUB_RUNTIMES": "gvisor,runc", "SANDBOXHUB_MEMORY": "128MiB", "SANDBOXHUB_DISK": "64MiB"}
    settings["SANDBOXHUB_EXEC_CEILING"] = "100"
    with deploy(SANDBOXHUB_VOLUME_SIZE="32MiB", SANDBOXHUB_REAP_INTERVAL="0.5", **settings) as server:
        yield server


def _until_it_dies(api: Api, method: str, path: str, body: dict[str, object] | None = None) -> threading.Thread:
    """A request whose answer nobody will ever get, or not care for."""

    def ask() -> None:
        try:
            requests.request(method, f"{api.url}/v1{path}", json=body, headers={"Authorization": f"Bearer {api.key}"}, timeout=120)
        except requests.RequestException:
            return  # the server died under it

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def _settled(server: Server, api: Api) -> bool:
    """Every lease is running, in error with a reason, or gone; and what is on the host belongs to a running one."""
    leases = api.get("/sandboxes").json()["sandboxes"]
    if any(lease["status"] == "pending" for lease in leases):
        return False
    assert all(lease["error"] for lease in leases if lease["status"] == "error")
    names = {Lease(api, lease["id"], lease).container for lease in leases if lease["status"] == "running"}
    left = [trace for trace in server.traces.of_sandboxes() if not any(name in trace for name in names)]
    return [trace for trace in left if "/volumes/" not in trace] == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_server_is_recovered_from(crashing: Server, moment: float) -> None:
    api = crashing.api("acme")
    survivors = [api.create(runtime=runtime) for runtime in ("gvisor", "runc")]
    dev = api.create(**{"class": "dev", "project": "kept", "runtime": "runc"})
    dev.write("kept.txt", b"still here")
    doomed = [api.create(runtime=runtime) for runtime in ("gvisor", "runc")]
    marks = [survivor.exec(command="sleep 4321 & echo $!")["stdout"] for survivor in survivors]
    assert all(marks)

    requested = [_until_it_dies(api, "POST", f"{survivor.path}/exec", {"command": "sleep 1234"}) for survivor in survivors]
    requested += [_until_it_dies(api, "DELETE", lease.path) for lease in doomed]
    requested += [_until_it_dies(api, "POST", "/sandboxes", {"runtime": runtime}) for runtime in ("gvisor", "runc", "gvisor", "runc")]
    requested.append(_until_it_dies(api, "POST", "/sandboxes", {"class": "dev", "project": "new", "runtime": "gvisor"}))
    threading.Event().wait(moment)  # not a synchronisation: the blow may fall anywhere
    crashing.kill()
    for thread in requested:
        thread.join()

    crashing.start()
    until(lambda: _settled(crashing, api), seconds=60)
    for survivor in survivors:
        assert survivor.status()["status"] == "running"
        # What the lost server ran in the foreground is gone.
        assert survivor.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 123[4]' || true").strip() == "0"
    assert dev.read("kept.txt") == b"still here"
    for lease in doomed:
        listed = api.get(lease.path)
        assert listed.status_code == 404 or listed.json()["status"] == "running"  # gone, or the blow came before the end was recorded
    again = api.create(**{"class": "dev", "project": "new", "runtime": "gvisor"})
    assert again.sh("echo served").strip() == "served"
