"""``manage.py serve`` as a process of its own, with a home, a database and a port of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from harness.client import Api
from harness.pods import PodTraces
from harness.traces import Traces
from harness.waiting import until

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 120.0  #: seconds until a server must serve, on a machine under load
STOP_TIMEOUT = 60.0
#: What must not reach the server from whoever runs the tests.
_OURS = ("SANDBOXHUB_RUNSC", "SANDBOXHUB_RUNC", "SANDBOXHUB_GUEST")
_SETTINGS = ("BIND", "PORT", "DATABASE_URL", "SECRET_KEY", "DEBUG", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "LOG_LEVEL", "LOG_FORMAT")


class Server:
    """A deployment: it can be stopped and started again, and keeps its state meanwhile.

    ``settings`` are environment variables, ``python`` is what runs manage.py. The log of all its processes is ``log``.
    """

    def __init__(
        self,
        home: Path,
        database_url: str,
        settings: Mapping[str, str],
        python: Sequence[str] = (sys.executable,),
        traces: PodTraces | None = None,
    ) -> None:
        self.home = home
        self._python = python
        self.log = home.with_name(f"{home.name}.log")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name.removesuffix("_FILE") not in _SETTINGS and (name in _OURS or not name.startswith("SANDBOXHUB_"))
        }
        self.environment |= {
            "SANDBOXHUB_HOME": str(home),
            "DATABASE_URL": database_url,
            "PORT": str(self.port),
            "LOG_FORMAT": "json",
            "PYTHONUNBUFFERED": "1",
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._keys: dict[tuple[str, str], str] = {}
        self._traces = traces

    def replica(self, **settings: str) -> Server:
        """Another process of the same deployment, not started."""
        other = Server(self.home, self.environment["DATABASE_URL"], {}, self._python, self._traces)
        other.log = self.home.with_name(f"{other.port}.log")
        other.environment = {**self.environment, "PORT": str(other.port), **settings}
        other._keys = self._keys
        return other

    # Life

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Started; at the end it stops cleanly."""
        try:
            self.start()
            yield self
            self.stop()
        finally:
            self.kill()

    def start(self) -> None:
        """Returns when it serves."""
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._python, "manage.py", "serve", "--setup"],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        threading.Thread(target=_pump, args=(self.process, lines), daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=START_TIMEOUT)
            except queue.Empty:
                self.kill()
                raise AssertionError(f"the server did not start in time:\n{self.log.read_text()[-4000:]}") from None
            if b"serves on" in line:
                return
            if not line:
                raise AssertionError(f"the server ended with {self.process.wait()}:\n{self.log.read_text()[-4000:]}")

    def stop(self) -> None:
        """SIGTERM: it must drain, exit with 0, and have nothing to complain about."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop:\n{self.log.read_text()[-4000:]}") from None
        self.process = None
        assert code == 0, self.log.read_text()[-4000:]
        assert not self.complaints()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def complaints(self) -> list[str]:
        """Lines of the log that tell of a defect."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            if not line.startswith("{"):
                found.append(line)
            elif json.loads(line).get("level") in ("error", "critical"):
                found.append(line)
        return found

    # What surrounds it

    def manage(self, *arguments: str) -> str:
        """Run ``manage.py ARGUMENTS`` in this deployment; its output."""
        command = [*self._python, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, f"manage.py {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def key(self, org: str, scopes: str = "read,use,manage") -> str:
        """An API key of ``org``; one and the same for the same question."""
        if (org, scopes) not in self._keys:
            self._keys[org, scopes] = self.manage("createkey", org, "--scopes", scopes).strip()
        return self._keys[org, scopes]

    def api(self, org: str, scopes: str = "read,use,manage") -> Api:
        return Api(self.url, self.key(org, scopes))

    def memory(self) -> int:
        """The server's resident memory now, in bytes."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def files(self) -> int:
        """How many file descriptors the server has open, but for its threads' connections to SQLite, which they keep."""
        assert self.process is not None
        directory = Path(f"/proc/{self.process.pid}/fd")
        count = 0
        for fd in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                count += ".sqlite3" not in os.readlink(directory / fd)
        return count

    def threads(self) -> int:
        assert self.process is not None
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    @property
    def traces(self) -> Traces | PodTraces:
        return self._traces or Traces(self.home)


#: Makes a deployment from settings.
Deploy = Callable[..., contextlib.AbstractContextManager[Server]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _pump(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Take what the server prints, so that it never blocks; an empty line is its end."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(b"")


@contextlib.contextmanager
def fresh_database(home: Path) -> Iterator[str]:
    """The URL of an empty database: SQLite in ``home``, or one of its own in the PostgreSQL that DATABASE_URL names."""
    base = os.environ.get("DATABASE_URL", "")
    if not base.startswith(("postgres:", "postgresql:")):
        yield f"sqlite:///{home / 'sandboxhub.sqlite3'}"
        return
    name = f"test_{secrets.token_hex(6)}"
    parts = urlsplit(base)
    with psycopg.connect(_conninfo(base), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}"))
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _conninfo(url: str) -> str:
    """For libpq: a socket's directory is a host to it, not a part of the path, as it is to django-environ."""
    parts = urlsplit(url)
    directory, _, name = parts.path.rpartition("/")
    if directory.strip("/"):
        return psycopg.conninfo.make_conninfo(host=f"/{directory.strip('/')}", dbname=name, user=parts.username or None)
    return url


@contextlib.contextmanager
def deployment(
    home: Path, *, python: Sequence[str] = (sys.executable,), traces: PodTraces | None = None, **settings: str
) -> Iterator[Server]:
    """A server that runs, and at the end has stopped cleanly and left nothing that no lease holds.

    ``settings`` are environment variables; ``traces`` where its sandboxes are not on this host. All leases are ended at the end.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with fresh_database(home) as database:
        server = Server(home, database, settings, python, traces)
        try:
            with server.running():
                yield server
                if server.process is None:
                    server.start()
                end_all(server)
                until(lambda: not server.traces.of_sandboxes(), seconds=90)
            assert server.traces.of_sandboxes() + server.traces.of_processes() == []
        finally:
            server.traces.clean()


def end_all(server: Server) -> None:
    """End every lease of every org that the tests made a key for, with their volumes."""
    for org in {org for org, _ in server._keys}:
        api = server.api(org)
        while found := api.get("/sandboxes").json()["sandboxes"]:
            for sandbox in found:
                response = api.delete(f"/sandboxes/{sandbox['id']}", params={"purge": "1"})
                assert response.status_code in (204, 404), response.text
        for volume in api.get("/volumes").json()["volumes"]:
            assert api.delete(f"/volumes/{volume['name']}").status_code == 204
