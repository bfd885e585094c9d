"""What callers without a key can make the server hold."""

from __future__ import annotations

from pathlib import Path

import requests
from harness.client import Api
from harness.server import Server
from harness.waiting import at_once, until

from .wire import dial, receive

MIB = 1 << 20


def threads(server: Server) -> int:
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


def test_bodies_that_do_not_come_cost_no_thread(server: Server, api: Api) -> None:
    before = threads(server)
    held = [dial(api) for _ in range(200)]
    try:
        for connection in held:
            connection.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert api.get("/org").status_code == 200
        assert threads(server) - before < 50
        for connection in held[:3]:
            connection.sendall(b" " * 98 + b"}")
            assert receive(connection).status == 401
    finally:
        for connection in held:
            connection.close()


def test_many_who_sign_in_at_once_cost_the_memory_of_one(server: Server) -> None:
    """A password's hash takes 100 MiB while it is made."""
    assert server.process is not None
    proc = Path(f"/proc/{server.process.pid}")
    (proc / "clear_refs").write_text("5")
    before = server.memory()

    def sign_in(number: int) -> int:
        session = requests.Session()
        session.get(f"{server.url}/admin/login/", timeout=120)
        form = {"username": f"nobody{number}", "password": "x" * 1000, "csrfmiddlewaretoken": session.cookies["csrftoken"]}
        return session.post(f"{server.url}/admin/login/", data=form, timeout=120).status_code

    assert set(at_once(8, sign_in)) == {200}
    fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    assert int(fields["VmHWM"].split()[0]) * 1024 - before < 300 * MIB


def test_an_idle_crowd_keeps_nobody_out(server: Server, api: Api) -> None:
    held = [dial(api) for _ in range(500)]
    try:
        assert api.get("/org").status_code == 200
    finally:
        for connection in held:
            connection.close()
    until(lambda: api.get("/org").status_code == 200)


def test_no_key_is_in_the_log(server: Server, api: Api) -> None:
    """Not in a line, and not in the part of one: neither of a key, nor of a ticket, nor of a password."""
    assert api.key is not None
    for headers in ({"Authorization": api.key}, {"Authorization": f"Bearer {api.key}x"}, {"X-Api-Key": api.key}):
        requests.get(f"{server.url}/v1/org?key={api.key}", headers=headers, timeout=60)
    requests.post(
        f"{server.url}/v1/sandboxes", data=b'{"class": "' + api.key.encode(), headers={"Authorization": f"Bearer {api.key}"}, timeout=60
    )
    assert api.key[17:] not in server.log.read_text()
