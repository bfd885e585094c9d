"""A server of its own, a real Chromium, and pages of terminals in it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from harness.client import Api, Lease
from harness.means import missing
from harness.server import Server, deployment
from playwright.sync_api import Browser, sync_playwright

from .terminal import Terminal

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
# A machine without a network, a GPU, or a user's own namespaces must do.
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --force-color-profile=srgb"
).split()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        missing("there is no chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


class _HostPage(BaseHTTPRequestHandler):
    """A page that frames the terminal which its query names, and keeps what that tells it."""

    def do_GET(self) -> None:
        frame = unquote(self.path.partition("?")[2])
        listen = "messages = []; addEventListener('message', (event) => messages.push({...event.data, from: event.origin}))"
        body = (
            f'<!doctype html><html lang="en"><title>Host</title><link rel="icon" href="data:,"><script>{listen}</script>'
            f'<iframe title="Terminal" src="{frame}" style="width:100%;height:460px;border:0"></iframe>'
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def host_port() -> Iterator[int]:
    """Where pages that frame terminals are served, to browsers that call it 127.0.0.1 or localhost: two origins."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _HostPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="session")
def host_server(tmp_path_factory: pytest.TempPathFactory, host_port: int) -> Iterator[Server]:
    """A server that lets pages of 127.0.0.1, but not of localhost, frame its terminals."""
    with deployment(
        tmp_path_factory.mktemp("deployment") / "home",
        SANDBOXHUB_RUNTIMES="runc,gvisor",
        SANDBOXHUB_MEMORY="256MiB",
        SANDBOXHUB_DISK="256MiB",
        SANDBOXHUB_ORIGINS=f"http://127.0.0.1:{host_port}",
        SANDBOXHUB_MAX_FILE=str(4 << 20),
        SANDBOXHUB_REAP_INTERVAL="0.5",
    ) as running:
        yield running


@pytest.fixture(scope="session")
def host_api(host_server: Server) -> Api:
    return host_server.api("acme")


@pytest.fixture(scope="session")
def _lease(host_api: Api) -> Lease:
    return host_api.create(runtime="runc", ttlSec=86_400)


@pytest.fixture
def lease(_lease: Lease) -> Lease:
    """A sandbox with an empty workdir. Many tests use it."""
    _lease.exec("find", ".", "-mindepth", "1", "-delete")
    return _lease


@pytest.fixture
def open_terminal(browser: Browser) -> Iterator[Callable[..., Terminal]]:
    """Open the page of a new ticket; ``options`` are the browser context's. At the end the pages must have behaved."""
    opened: list[Terminal] = []

    def open_one(lease: Lease, arg: str = "", **options: Any) -> Terminal:
        opened.append(Terminal.of(browser, lease, arg, **options))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.check_and_close()
