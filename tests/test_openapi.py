"""The OpenAPI document: what it must name, and that a live server does what it says (schemathesis)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
from harness.server import Server

#: operationId, method and path of what is served (the contract's own names; screens, ports, previews and pauses come later).
OPERATIONS = {
    ("get_sandbox", "get", "/v1/sandbox"),
    ("post_sandbox", "post", "/v1/sandbox"),
    ("get_sandbox_by_id", "get", "/v1/sandbox/{id}"),
    ("delete_sandbox_by_id", "delete", "/v1/sandbox/{id}"),
    ("post_sandbox_by_id_exec", "post", "/v1/sandbox/{id}/exec"),
    ("get_sandbox_by_id_fs", "get", "/v1/sandbox/{id}/fs"),
    ("post_sandbox_by_id_fs", "post", "/v1/sandbox/{id}/fs"),
    ("post_sandbox_by_id_terminal_ticket", "post", "/v1/sandbox/{id}/terminal/ticket"),
    ("lease_sandbox", "post", "/v1/sandbox/lease"),
    ("run_in_sandbox", "post", "/v1/sandbox/run"),
    ("read_sandbox_file", "post", "/v1/sandbox/read"),
    ("write_sandbox_file", "post", "/v1/sandbox/write"),
    ("stop_run", "post", "/v1/sandbox/stop"),
    ("end_sandbox", "post", "/v1/sandbox/end"),
    ("get_org", "get", "/v1/org"),
    ("get_projects", "get", "/v1/projects"),
    ("post_project", "post", "/v1/projects"),
    ("get_project", "get", "/v1/projects/{slug}"),
    ("delete_project", "delete", "/v1/projects/{slug}"),
    ("get_volumes", "get", "/v1/volumes"),
    ("get_volume", "get", "/v1/volumes/{name}"),
    ("delete_volume", "delete", "/v1/volumes/{name}"),
}
#: Rules between members, and about paths, that OpenAPI cannot say: a refusal of what the document allows is no failure of these.
REFUSING = (
    "post_sandbox",
    "lease_sandbox",
    "get_sandbox",
    "get_sandbox_by_id_fs",
    "post_sandbox_by_id_fs",
    "read_sandbox_file",
    "write_sandbox_file",
    "post_project",
)
CONFIGURATION = """
seed = 1
[generation]
allow-x00 = false
max-examples = 25
database = "none"
deterministic = true
[[operations]]
include-operation-id = [{refusing}]
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "401", "403", "404", "409"]
"""


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    response = requests.get(f"{server.url}/v1/openapi.json", timeout=60)
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def test_operations(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.")
    named = {(about["operationId"], method, path) for path, item in document["paths"].items() for method, about in item.items()}
    assert named >= OPERATIONS
    assert len({name for name, _, _ in named}) == len(named)


def test_every_operation_needs_a_key_and_may_be_refused(document: dict[str, Any]) -> None:
    for name, method, path in OPERATIONS:
        about = document["paths"][path][method]
        assert about["security"] == [{"key": []}], name
        assert "application/problem+json" in about["responses"]["default"]["content"], name


def test_the_server_does_what_the_document_says(server: Server, tmp_path: Path) -> None:
    api = server.api("document")
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION.format(refusing=", ".join(f'"{name}"' for name in REFUSING)))
    sandbox = api.create(ttlSec=86_400)
    command = [str(Path(sys.executable).with_name("st")), "--config-file", str(configuration), "run", f"{server.url}/v1/openapi.json"]
    command += ["--no-color", "--continue-on-failure", "--header", f"Authorization: Bearer {api.key}"]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "harness.openapi_hooks",
        "PYTHONPATH": str(Path(__file__).parent),
        "SANDBOX": sandbox.id,
    }
    done = subprocess.run(command, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sandbox.exec("true")["exitCode"] == 0
    sandbox.end()
