"""What a confused operator may set up: refused, or made safe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.server import ROOT


def manage(home: Path, *arguments: str, umask: int = 0o022, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SANDBOXHUB_", "DATABASE_URL"))}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**environment, "SANDBOXHUB_HOME": str(home), **settings},
        umask=umask,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_home_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    done = manage(home, "check")
    assert done.returncode != 0
    assert "SANDBOXHUB_HOME: others may write" in done.stderr
    assert not list(home.iterdir())


def test_what_is_made_in_a_readable_home_is_the_owner_s_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    assert manage(home, "migrate", umask=0).returncode == 0
    modes = {path.name: path.stat().st_mode & 0o077 for path in home.iterdir()}
    assert {"secret_key", "sandboxhub.sqlite3"} <= set(modes)
    assert set(modes.values()) == {0}


def test_a_url_of_a_database_shows_no_password(tmp_path: Path) -> None:
    for url in ("postgres://user:hunter2hunter2@[bad/x", "nonsense://user:hunter2hunter2@host/x", "mysql://user:hunter2hunter2@host/x"):
        done = manage(tmp_path / "home", "check", "--database", "default", DATABASE_URL=url)
        assert "hunter2hunter2" not in done.stdout + done.stderr, done.stderr[-600:]


def test_tracebacks_on_a_console_show_no_values() -> None:
    program = """
import structlog
from sandboxhub.logging import configure
configure({"level": "INFO", "format": "console"})
def fail(key):
    secret = key * 2
    raise RuntimeError("a defect")
try:
    fail("sbx_" + "hidden")
except RuntimeError:
    structlog.get_logger("x").exception("it failed")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "RuntimeError: a defect" in done.stderr
    assert "sbx_hidden" not in done.stderr


def test_https_only_holds_for_the_api_too() -> None:
    program = """
import os
os.environ |= {"SANDBOXHUB_SECURE": "on", "SANDBOXHUB_PROXY": "on", "ALLOWED_HOSTS": "a.example"}
os.environ["DJANGO_SETTINGS_MODULE"] = "sandboxhub.settings"
import django
django.setup()
from sandboxhub.gate import refusal
def ask(scheme, path="/v1/org", *headers):
    refused = refusal({"type": "http", "scheme": scheme, "path": path, "headers": [(b"host", b"a.example"), *headers]})
    return refused and refused[0]
print(ask("http"), ask("ws"), ask("https"), ask("wss"), ask("http", "/admin/"))
print(ask("https", "/v1/org", (b"x-forwarded-host", b"b.example")))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "403 403 None None None\n400\n", done.stderr
