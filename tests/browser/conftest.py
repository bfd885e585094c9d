"""A server of its own, a real Chromium, and pages of terminals in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.client import Api, Lease
from harness.server import Server, deployment
from playwright.sync_api import Browser, sync_playwright

from .terminal import HOST, Terminal

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
# A machine without a network, a GPU, or a user's own namespaces must do.
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --force-color-profile=srgb"
).split()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is missing")
        pytest.skip("chromium is missing")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def host_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that lets pages of ``HOST`` frame its terminals."""
    with deployment(
        tmp_path_factory.mktemp("deployment") / "home",
        SANDBOXHUB_RUNTIMES="runc,gvisor",
        SANDBOXHUB_MEMORY="256MiB",
        SANDBOXHUB_DISK="256MiB",
        SANDBOXHUB_ORIGINS=HOST,
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
