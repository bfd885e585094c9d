"""Drawing with WebGL, which is chosen only where hardware does it: here the browser is made to hide that software does."""

from __future__ import annotations

from harness.client import Lease
from playwright.sync_api import Browser

from .terminal import Terminal

_HIDE = """
const getExtension = WebGL2RenderingContext.prototype.getExtension;
WebGL2RenderingContext.prototype.getExtension = function (name) {
  return name === 'WEBGL_debug_renderer_info' ? null : getExtension.call(this, name);
};
"""


def test_a_lost_context_leaves_the_text_on_the_screen(browser: Browser, lease: Lease) -> None:
    terminal = Terminal.of(browser, lease, scripts=[_HIDE])
    terminal.run("echo dr''awn; for c in 1 2 3 4 5 6; do printf '\\033[3%smcolour %s\\033[m ' $c $c; done; echo — 😀 漢字")
    canvas = terminal.page.locator(".xterm-screen canvas").first
    canvas.wait_for()
    assert terminal.text() == ""
    canvas.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    terminal.shot("webgl")
    lose = "all => all.map(one => one.getContext('webgl2')).find(Boolean).getExtension('WEBGL_lose_context').loseContext()"
    terminal.page.locator(".xterm-screen canvas").evaluate_all(lose)
    terminal.until("^drawn$")
    terminal.run("echo go''on")
    terminal.until("^goon$")
    terminal.check_and_close()
