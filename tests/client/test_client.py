"""The published client of the API that Sandboxhub serves, unchanged, against a live server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.client import check_sandbox
from harness.server import Server, deployment

#: Operations that the server does not have yet. One that starts to work must be taken off this list, and driven.
GAPS = (
    "get_sandbox_by_id_ports",
    "get_sandbox_by_id_screen",
    "get_sandbox_by_id_screen_ws",
    "post_sandbox_by_id_pause",
    "post_sandbox_by_id_preview",
    "post_sandbox_by_id_resume",
    "post_sandbox_by_id_screen_ticket",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with deployment(tmp_path_factory.mktemp("client") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def report(server: Server) -> dict[str, Any]:
    """One process drives everything: the client takes half a minute to import."""
    python = os.environ.get("CLIENT_PYTHON")
    assert python, "CLIENT_PYTHON must name the Python of an environment with tests/client/requirements.txt; script/test makes one"
    command = [python, str(Path(__file__).with_name("drive.py")), server.url, server.key("acme"), *GAPS]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_operation_is_driven(report: dict[str, Any]) -> None:
    assert set(report["operations"]) <= set(report)


@pytest.mark.parametrize("operation", GAPS)
def test_a_gap_is_still_one(report: dict[str, Any], operation: str) -> None:
    assert report[operation] in (404, 405), "it works now: take it off the list, and drive it"


def test_create_get_and_list(report: dict[str, Any]) -> None:
    made = report["post_sandbox"]
    check_sandbox(made)
    assert (made["class"], made["status"], made["runtime"], made["org"]) == ("exec", "running", "gvisor", "acme")
    assert made["expiresAt"] - made["createdAt"] == 600
    assert report["get_sandbox_by_id"] == made
    assert report["get_sandbox"] == {"all": [made["id"]], "running": [made["id"]], "of a project": []}


def test_exec(report: dict[str, Any]) -> None:
    assert report["post_sandbox_by_id_exec"] == {"exitCode": 3, "stdout": "input", "stderr": "error\n"}


def test_files(report: dict[str, Any]) -> None:
    assert report["get_sandbox_by_id_fs"] == "a file\ndir\n"
    assert report["post_sandbox_by_id_fs"] == ["BadRequestException", 400, "path_refused"]


def test_lease(report: dict[str, Any]) -> None:
    leased = report["lease_sandbox"]
    expected = {"id": leased["id"], "class": "dev", "runtime": "gvisor", "status": "running", "workdir": "/work"}
    assert report["lease_sandbox again"] == leased == expected


def test_read_and_write(report: dict[str, Any]) -> None:
    assert report["write_sandbox_file"] == {"path": "/work/dir/file", "bytes": 256}
    assert report["read_sandbox_file"] == {"path": "/work/dir/file", "dir": False, "exact": True}
    assert report["read_sandbox_file of a directory"] == {"path": "/work", "dir": True, "entries": ["dir"]}


def test_run(report: dict[str, Any]) -> None:
    assert report["run_in_sandbox"] == {"exitCode": 0, "stdout": "[redacted]\n/work\n", "stderr": ""}


def test_stop(report: dict[str, Any]) -> None:
    assert report["stop_run"] == {"stopped": 1, "idle": 0, "run": ["ServiceException", 502, "stopped"]}


def test_terminal(report: dict[str, Any]) -> None:
    grant = report["post_sandbox_by_id_terminal_ticket"]
    page = f"/v1/sandbox/{report['post_sandbox']['id']}/terminal?ticket={grant['ticket']}"
    assert grant == {"ticket": grant["ticket"], "expiresIn": 30, "url": page}
    assert report["get_sandbox_by_id_terminal"] == [200, "text/html; charset=utf-8"]
    assert report["get_sandbox_by_id_terminal_ws"] == ["UnauthorizedException", 401, "ticket_invalid"]


def test_end_and_delete(report: dict[str, Any]) -> None:
    assert (report["end_sandbox"], report["delete_sandbox_by_id"]) == (204, 204)


def test_errors(report: dict[str, Any]) -> None:
    assert report["errors"] == {
        "gone": ["NotFoundException", 404, "not_found"],
        "ended": ["NotFoundException", 404, "not_found"],
        "empty id": ["NotFoundException", 404, "not_found"],
        "bad class": ["BadRequestException", 400, "invalid_class"],
        "no key": ["UnauthorizedException", 401, "unauthorized"],
    }
