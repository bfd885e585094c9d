"""How a terminal ends, in words, and what a host page is told. "Check" and a number name acceptance checks of terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from harness.client import Api, Lease
from harness.server import Server
from harness.waiting import until
from playwright.sync_api import Browser, FrameLocator, Page

from .terminal import Terminal, ticket_url

Open = Callable[..., Terminal]


def ended(terminal: Terminal) -> str:
    """What the page says at the end."""
    panel = terminal.page.locator("#ended")
    panel.wait_for()
    assert terminal.page.evaluate("document.activeElement.closest('#ended') !== null"), "the focus is not there"
    assert panel.get_by_role("alert").count() == 1
    return panel.inner_text()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_an_exit_is_told_with_its_code(open_terminal: Open, lease: Lease, scheme: str) -> None:
    """Check 12: the last output is shown, and the code is named."""
    terminal = open_terminal(lease, color_scheme=scheme)
    terminal.plain_shell()
    terminal.run("printf la''st; exit 3")
    told = ended(terminal)
    assert "The shell has ended" in told
    assert "Exited with code 3" in told or "exited with code 3" in told
    assert "open a new terminal where you opened this one" in told
    assert "last" in terminal.text()
    assert not terminal.page.locator("#again").is_visible()
    terminal.shot(f"ended-{scheme}")
    assert terminal.axe() == []


def test_a_signal_is_named(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.plain_shell()
    terminal.run("kill -KILL $$")
    assert "signal 9 (SIGKILL)" in ended(terminal)


def test_the_end_of_the_lease_is_told(open_terminal: Open, host_api: Api) -> None:
    """Check 13."""
    lease = host_api.create(runtime="runc")
    terminal = open_terminal(lease)
    terminal.run("echo hel''lo")
    terminal.until("^hello$")
    lease.end()
    told = ended(terminal)
    assert "The lease has ended" in told and "Lease a new sandbox" in told
    terminal.shot("lease-ended")


def test_the_death_of_the_sandbox_is_told(open_terminal: Open, host_api: Api) -> None:
    """Check 13."""
    lease = host_api.create(runtime="runc", memory="64MiB")
    terminal = open_terminal(lease)
    terminal.run("echo hel''lo")
    terminal.until("^hello$")
    host_api.post(f"{lease.path}/exec", {"argv": ["sh", "-c", "kill -KILL 1; kill -KILL -1"]})
    told = ended(terminal)
    assert "ended" in told or "died" in told or "failed" in told


def test_a_spent_ticket_opens_nothing(browser: Browser, lease: Lease) -> None:
    """Check 19, as the user of the page sees it."""
    url = ticket_url(lease)
    context = browser.new_context()
    first = context.new_page()
    first.goto(url)
    first.locator("#state", has_text="Connected").wait_for()
    second = context.new_page()
    second.goto(url)
    panel = second.locator("#ended")
    panel.wait_for()
    assert "could not be opened" in panel.inner_text() and "used already" in panel.inner_text()
    context.close()


def test_a_stop_of_the_server_is_told(open_terminal: Open, host_server: Server, lease: Lease) -> None:
    terminal = open_terminal(lease, "kept")
    terminal.run("echo be''fore")
    terminal.until("^before$")
    host_server.stop()
    try:
        told = ended(terminal)
        assert "going away" in told and "keeps running" in told
    finally:
        host_server.start()
    again = open_terminal(lease, "kept")
    again.until("^before$")


class Host:
    """A page that frames a terminal, as a product's own would."""

    def __init__(self, browser: Browser, origin: str, lease: Lease) -> None:
        self.context = browser.new_context(viewport={"width": 900, "height": 500})
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        self.page.goto(f"{origin}/?{quote(ticket_url(lease), safe='')}")

    @property
    def frame(self) -> FrameLocator:
        return self.page.frame_locator("iframe")

    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate("messages")
        return found


@pytest.fixture
def framed(browser: Browser) -> Iterator[Callable[[str, Lease], Host]]:
    opened: list[Host] = []

    def frame(origin: str, lease: Lease) -> Host:
        opened.append(Host(browser, origin, lease))
        return opened[-1]

    yield frame
    for host in opened:
        host.context.close()


def test_a_host_page_is_told_and_asked(framed: Callable[[str, Lease], Host], host_port: int, lease: Lease) -> None:
    host = framed(f"http://127.0.0.1:{host_port}", lease)
    origin = lease.api.url
    until(lambda: host.messages() == [{"source": "hanzo-term", "ready": True, "from": origin}])
    host.frame.locator(".xterm-helper-textarea").press_sequentially("exit 7\n")
    again = host.frame.get_by_role("button", name="New terminal")
    again.wait_for()
    assert host.messages()[1:] == [{"source": "hanzo-term", "ready": False, "why": "exited with code 7", "from": origin}]
    host.page.screenshot(path=Terminal.artifact("framed-ended"))
    again.press("Enter")
    until(lambda: host.messages()[2:] == [{"source": "hanzo-term", "retry": True, "from": origin}])
    assert host.problems == []


def test_a_foreign_page_may_not_frame_it(framed: Callable[[str, Lease], Host], host_port: int, lease: Lease) -> None:
    """Check 20."""
    host = framed(f"http://localhost:{host_port}", lease)
    until(lambda: any("frame-ancestors" in problem for problem in host.problems))
    assert host.messages() == []
