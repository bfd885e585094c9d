"""The cluster that tests run against, as pytest fixtures. A ``conftest.py`` that wants them imports them.

With ``KUBECONFIG`` set it is that cluster. Else it is the one of ``script/cluster``: one that is up already is used and left up; another is
started, and ended with the session. Where a machine can't have one, tests are skipped; with ``CI=true`` they fail.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.images import build_image
from harness.means import missing

from .faults import Node

SCRIPT = Path(__file__).parents[2] / "script" / "cluster"
_MACHINE_LACKS = 4  # the exit code of script/cluster


def run(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, command], env={**os.environ, **env}, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def up(**env: str) -> Path:
    """Have ``script/cluster`` start a cluster, unless it is up. The kubeconfig of its admin."""
    result = run("up", **env)
    if result.returncode == _MACHINE_LACKS:
        missing(result.stderr.strip())
    if result.returncode:
        pytest.fail(f"script/cluster up: exit {result.returncode}\n{result.stderr}", pytrace=False)
    return Path(result.stdout.splitlines()[-1].removeprefix("KUBECONFIG="))


def bring_image(node: Node, name: str, scratch: Path) -> str:
    """Have the image ``name`` of ``images/``, as it is in this checkout, on the node; its reference. ``scratch`` is for its archive."""
    archive = scratch / f"{name}.tar"
    build_image(name, "--image", archive)
    init = (node.state / "init.pid").read_text().strip()
    with archive.open("rb") as opened:  # as a process of the node, so that it ends with the node
        command = ["nsenter", "--pid", "--mount", "--target", init, "/mnt/bin/ctr", "--namespace", "k8s.io", "images", "import", "-"]
        subprocess.run(command, stdin=opened, check=True, stdout=subprocess.DEVNULL)
    archive.unlink()
    return f"localhost/sandboxhub-{name}:1"


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """The kubeconfig of an admin of the cluster."""
    if given := os.environ.get("KUBECONFIG"):
        yield Path(given)
        return
    was_up = run("status").returncode == 0
    yield up()
    if not was_up:
        assert run("down").returncode == 0


@pytest.fixture(scope="session")
def node(kubeconfig: Path) -> Node:
    """The node of ``script/cluster``, to do harm to; a test that wants it is skipped on another cluster."""
    found = Node.of(kubeconfig)
    if found is None:
        pytest.skip("the cluster of KUBECONFIG is not one of script/cluster, whose parts could be stopped")
    return found
