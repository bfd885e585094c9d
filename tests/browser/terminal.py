"""The page of a terminal, as a user has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.client import Lease
from harness.waiting import until
from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "test-artifacts"
AXE = ROOT / "terminals/web/node_modules/axe-core/axe.min.js"

# What the page must never do shows in here. It is set up before the page's own script.
_WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
window.frames_sent = [];
window.sent_at = [];
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  if (typeof data === "string" && data.includes("resize")) window.sent_at.push(performance.now());
  window.frames_sent.push(typeof data === 'string' ? data : data.byteLength);
  return send.call(this, data);
};
"""


def ticket_url(lease: Lease, arg: str = "") -> str:
    """The page of a new ticket."""
    response = lease.api.post(f"{lease.path}/terminal/ticket")
    assert response.status_code == 201, response.text
    return f"{lease.api.url}{response.json()['url']}{f'&arg={arg}' if arg else ''}"


class Terminal:
    """One page in a browser context of its own."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.context = context
        self.page: Page = context.new_page()
        self.origin = urlsplit(origin).netloc
        self.problems: list[str] = []
        self.addresses: list[str] = []
        self.closed = False
        self.page.on("pageerror", lambda error: self.problems.append(f"{error}"))
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        self.page.on("request", lambda request: self.addresses.append(request.url))
        self.page.on("websocket", lambda socket: self.addresses.append(socket.url))

    @classmethod
    def of(cls, browser: Browser, lease: Lease, arg: str = "", scripts: Sequence[str] = (), **options: Any) -> Terminal:
        options = {"viewport": {"width": 1000, "height": 640}, "color_scheme": "dark", **options}
        context = browser.new_context(**options)
        context.set_default_timeout(60_000)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        for script in (_WATCH, *scripts):
            context.add_init_script(script)
        terminal = cls(context, lease.api.url)
        terminal.page.goto(ticket_url(lease, arg))
        terminal.until_state("Connected")
        return terminal

    def text(self) -> str:
        """What stands on the screen: its rows without what is blank at the end of each."""
        rows = self.page.locator(".xterm-rows > div").all_text_contents()
        return "\n".join(row.replace("\xa0", " ").rstrip() for row in rows).rstrip()

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until ``pattern`` stands on the screen, where ``^`` and ``$`` are a row's ends."""
        seen = ""

        def found() -> re.Match[str] | None:
            nonlocal seen
            seen = self.text()
            return re.search(pattern, seen, re.MULTILINE)

        try:
            return until(found)
        except AssertionError:
            raise AssertionError(f"{pattern!r} is not on the screen:\n{seen}\n{self.problems}") from None

    def until_state(self, text: str) -> None:
        self.page.locator("#state", has_text=text).wait_for()

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def run(self, line: str) -> None:
        self.page.keyboard.type(f"{line}\n")

    def plain_shell(self) -> None:
        """Have a shell whose prompt and line editing are the same everywhere."""
        self.run("exec env PS1='$ ' bash --norc")
        self.until(r"^\$ $|^\$$")
        self.run("clear")
        until(lambda: self.text() == "$")

    def paste(self, text: str) -> None:
        """As a user: from the clipboard, by the keyboard."""
        self.page.evaluate("text => navigator.clipboard.writeText(text)", text)
        self.page.keyboard.press("Control+Shift+V")

    def clipboard(self) -> str:
        return str(self.page.evaluate("navigator.clipboard.readText()"))

    def resizes(self) -> list[str]:
        """The text frames that told a size, so far."""
        return [frame for frame in self.page.evaluate("window.frames_sent") if isinstance(frame, str) and "resize" in frame]

    def shot(self, name: str) -> None:
        """Keep a picture for people to look at."""
        self.page.screenshot(path=self.artifact(name))

    @staticmethod
    def artifact(name: str) -> Path:
        ARTIFACTS.mkdir(exist_ok=True)
        return ARTIFACTS / f"terminal-{name}.png"

    def axe(self) -> list[dict[str, Any]]:
        """What axe finds on the page as it is."""
        session = self.context.new_cdp_session(self.page)  # the policy lets no script in by other ways
        session.send("Runtime.evaluate", {"expression": AXE.read_text()})
        found = self.page.evaluate("axe.run()")
        return [{"rule": item["id"], "nodes": [node["html"] for node in item["nodes"]]} for item in found["violations"]]

    def check_and_close(self) -> None:
        """No error, nothing that the policy had to refuse, and no other origin."""
        if self.closed:
            return
        self.closed = True
        if not self.page.is_closed():
            assert self.page.evaluate("window.violations") == []
        assert self.problems == []
        assert {urlsplit(address).netloc for address in self.addresses if not address.startswith("data:")} == {self.origin}
        self.context.close()
