"""The product as it is run: ``manage.py serve`` in a process and a home of its own, on SQLite unless told otherwise."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class ServerFailed(Exception):
    """The server did not start; the text has its log."""


class Server:
    def __init__(self, home: Path, runtimes: list[str], database: str | None, engine: str, environment: Mapping[str, str]) -> None:
        """``environment``: settings that ``engine`` needs."""
        self.port = _free_port()
        #: Its database file, if it is on SQLite.
        self.sqlite = None if database else home / "sandboxhub.sqlite3"
        self._log = home.with_suffix(".log")
        self._environment = _environment() | {
            "SANDBOXHUB_HOME": str(home),
            "SANDBOXHUB_ENGINE": engine,
            "SANDBOXHUB_RUNTIMES": ",".join(runtimes),
            "PORT": str(self.port),
            "LOG_FORMAT": "json",
            **environment,
        }
        if database:
            self._environment["DATABASE_URL"] = database
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Serve; returns an API key."""
        self._manage("migrate", "--verbosity", "0")
        key = self._manage("createkey", "bench").strip()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command("serve"), env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        if not any("serves on" in line for line in self._process.stdout):
            raise ServerFailed(f"the server did not start:\n{self._log.read_text()[-4000:]}")
        return key

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()

    def reset_peak(self) -> int:
        """Forget the highest memory use so far; returns the present one, in bytes."""
        assert self._process is not None
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")
        return self._memory("VmRSS")

    def peak(self) -> int:
        """The highest memory use since ``reset_peak``, in bytes."""
        return self._memory("VmHWM")

    def _memory(self, field: str) -> int:
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10

    def _manage(self, *arguments: str) -> str:
        done = subprocess.run(self._command(*arguments), env=self._environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServerFailed(f"manage.py {arguments[0]} failed:\n{done.stderr[-4000:]}")
        return done.stdout

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / "manage.py"), *arguments]


def _environment() -> dict[str, str]:
    """The caller's, without what would lead to the data of a deployment, and what is no setting of the server's."""
    dropped = ("DATABASE_URL", "DATABASE_URL_FILE", "BIND", "SANDBOXHUB_CLUSTER")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
