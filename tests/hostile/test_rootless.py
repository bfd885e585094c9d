"""A server that an ordinary user runs: commands have the guest's own uid, and may end it. Their sandbox fails, and nothing is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.client import Lease
from harness.limits import RUNTIMES
from harness.means import missing
from harness.server import Server, deployment
from harness.waiting import until

from . import inside

USER = 54322  # of no account: the engine needs none
AS_USER = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server as somebody else")


@pytest.fixture(scope="module")
def rootless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Not beneath pytest's own directory: that is root's alone."""
    base = Path(tempfile.mkdtemp(prefix="rootless-"))
    python = next((found for found in (sys.executable, "/usr/bin/python3") if usable(found)), None)
    if python is None:
        shutil.rmtree(base)
        missing("an ordinary user can run no Python that has what the server needs")
    try:
        base.chmod(0o755)
        programs = {}
        for name in ("SANDBOXHUB_GUEST", "SANDBOXHUB_RUNSC"):
            if source := os.environ.get(name):
                programs[name] = str(shutil.copy(source, base / name.lower()))
                os.chmod(programs[name], 0o755)
        settings = {"PYTHONPATH": sysconfig.get_paths()["purelib"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(base), "TMPDIR": str(base)}
        (base / "home").mkdir(mode=0o700)
        os.chown(base / "home", USER, USER)
        with deployment(
            base / "home", python=[*AS_USER, python], SANDBOXHUB_RUNTIMES=",".join(RUNTIMES), **settings, **programs
        ) as running:
            yield running
    finally:
        shutil.rmtree(base, ignore_errors=True)


def usable(python: str) -> bool:
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import django, daphne, structlog'], check=True)"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": sysconfig.get_paths()["purelib"]}
    return subprocess.run([*AS_USER, python, "-c", again], env=environment, check=False, capture_output=True).returncode == 0


@pytest.fixture
def lease(rootless: Server, runtime: str) -> Iterator[Callable[[], Lease]]:
    taken: list[Lease] = []

    def take() -> Lease:
        taken.append(rootless.api("attacker").create(runtime=runtime))
        return taken[-1]

    yield take
    for one in taken:
        assert one.api.delete(one.path).status_code in (204, 404)
    until(lambda: not [trace for trace in rootless.traces.of_sandboxes() for one in taken if one.container in trace])


@pytest.mark.parametrize("signal", ["KILL", "STOP", "SEGV", "QUIT", "TERM"])
def test_a_signal_to_the_first_process(rootless: Server, lease: Callable[[], Lease], signal: str) -> None:
    """It is ignored, or the sandbox fails with the reason; its neighbour does not notice. One that stands still is told by its silence."""
    box, neighbour = lease(), lease()
    box.api.post(f"{box.path}/exec", {"command": f"kill -{signal} 1; sleep 1; echo survived", "timeoutSec": 20})

    def settled() -> bool:
        body = box.status()
        if body["status"] == "error":
            assert body["error"] and "/" not in body["error"], body
            return True
        response = box.api.post(f"{box.path}/exec", {"argv": ["echo", "alive"], "timeoutSec": 5})
        return response.status_code == 200 and bool(response.json()["stdout"] == "alive\n")

    until(settled, seconds=150)
    if box.status()["status"] == "error":
        until(lambda: not [trace for trace in rootless.traces.of_sandboxes() if box.container in trace])
    assert neighbour.sh("echo alive") == "alive\n"


def test_forged_frames_and_limits(lease: Callable[[], Lease]) -> None:
    """Everything that the same uid may do to the guest at once: the sandbox serves, or fails with the reason."""
    box, neighbour = lease(), lease()
    for program in (inside.FORGE, inside.SPEAK, inside.ATTACK_FIRST_PROCESS):
        box.api.post(f"{box.path}/exec", {"argv": ["python3", "-c", program], "timeoutSec": 20})

    def settled() -> bool:
        body = box.status()
        if body["status"] == "error":
            assert body["error"], body
            return True
        response = box.api.post(f"{box.path}/exec", {"argv": ["echo", "alive"], "timeoutSec": 5})
        return response.status_code in (200, 502)

    until(settled, seconds=150)
    assert neighbour.sh("echo alive") == "alive\n"
