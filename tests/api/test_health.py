"""What a load balancer and a kubelet ask."""

from __future__ import annotations

from pathlib import Path

import requests
from harness.client import Api
from harness.server import Server


def test_they_are_answered_to_whoever_asks(api: Api):
    """A kubelet addresses a pod by its IP."""
    for path in ("/healthz", "/readyz"):
        response = requests.get(f"{api.url}{path}", headers={"Host": "10.0.0.1:8000"}, timeout=60)
        assert (response.status_code, response.text) == (200, "ok\n")
        assert requests.head(f"{api.url}{path}", timeout=60).content == b""


def test_only_readiness_needs_the_database(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    database = home / "database"
    server = Server(home, f"sqlite:///{database}", {"SANDBOXHUB_REAPER": "off", "SANDBOXHUB_RUNTIMES": "runc"})
    with server.running():
        kept = database.rename(home / "kept")
        database.mkdir()
        assert requests.get(f"{server.url}/readyz", timeout=60).status_code == 503
        assert requests.get(f"{server.url}/healthz", timeout=60).status_code == 200
        database.rmdir()
        kept.rename(database)
        assert requests.get(f"{server.url}/readyz", timeout=60).status_code == 200
