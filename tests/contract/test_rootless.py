"""The whole suite once more as an ordinary user, when root runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from harness.means import missing

from .support import RUNTIMES, program

_USER = 54321  # of no account: the engine needs none
_ROOT = Path(__file__).parents[2]


def _as_user(*command: str) -> list[str]:
    return ["setpriv", "--reuid", str(_USER), "--regid", str(_USER), "--clear-groups", *command]


def _python(environment: dict[str, str]) -> str:
    """An interpreter that the user may run: the tests' own may lie in root's home."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        # Twice, because setpriv still has root's rights when it runs the first.
        again = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
        probe = _as_user(candidate, "-c", again, "import sys, pytest, pytest_asyncio; assert sys.version_info >= (3, 11)")
        if subprocess.run(probe, env=environment, check=False, capture_output=True).returncode == 0:
            return candidate
    return missing("an ordinary user can run no Python that has pytest")


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite runs as an ordinary user already")
def test_the_suite_as_an_ordinary_user(guest_program: Path):
    home = Path(tempfile.mkdtemp(prefix="user-"))
    try:
        guest = shutil.copy(guest_program, home / "guest")
        os.chmod(guest, 0o755)
        programs = {variable: found for name, (variable, _) in RUNTIMES.items() if (found := program(name))}
        os.chown(home, _USER, _USER)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{_ROOT}:{sysconfig.get_paths()['purelib']}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(home),
            "TMPDIR": str(home),
            "SANDBOXHUB_HOME": str(home / "hub"),
            "SANDBOXHUB_GUEST": str(guest),
            **programs,
        }
        command = [_python(environment), "-m", "pytest", "tests/contract", "-q", "-p", "no:cacheprovider", "--basetemp", str(home / "tmp")]
        done = subprocess.run(_as_user(*command), env=environment, cwd=_ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert " passed" in done.stdout
    finally:
        shutil.rmtree(home)
