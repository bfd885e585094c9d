"""What goes from the user to the sandbox and back through the clipboard, and links."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from harness.client import Lease
from harness.waiting import until

from .terminal import Terminal

Open = Callable[..., Terminal]


def lines(size: int) -> str:
    """Text of ``size`` bytes, in lines of 64."""
    return "".join(f"{number:063d}\n" for number in range(size // 64))


@pytest.mark.parametrize("size", [256 << 10, 2 << 20], ids=["256 KiB", "2 MiB"])
def test_a_big_paste_is_whole(open_terminal: Open, lease: Lease, size: int) -> None:
    """Check 16; and 2 MiB are not too big a message."""
    terminal = open_terminal(lease)
    terminal.plain_shell()
    terminal.run("stty -echo; cat > pasted; stty echo; sha256sum pasted")
    text = lines(size)
    until(lambda: "pasted" in lease.sh("ls"))
    terminal.paste(text)
    until(lambda: lease.sh("stat -c %s pasted").strip() == str(size), seconds=240)
    terminal.page.keyboard.press("Control+d")
    terminal.until(f"^{hashlib.sha256(text.encode()).hexdigest()}")
    terminal.until_state("Connected")


@pytest.mark.parametrize("shell", ["bash --norc", "zsh -f"])
def test_the_end_of_a_paste_in_a_paste_runs_nothing(open_terminal: Open, lease: Lease, shell: str) -> None:
    """Check 17."""
    terminal = open_terminal(lease)
    terminal.run(f"exec env PS1='$ ' {shell}")
    terminal.run("echo re''ady")
    terminal.until("^ready$")
    terminal.paste("harmless\x1b[201~\ntouch pwned\n\x9b201~\ntouch pwned\n")
    terminal.until("touch pwned")
    terminal.page.keyboard.press("Control+c")
    terminal.run("ls; echo lis''ted")
    terminal.until("^listed$")
    assert lease.sh("ls") == ""


def test_a_pasted_resize_is_text(open_terminal: Open, lease: Lease) -> None:
    """Check 11: what is typed goes out as binary frames, whatever it looks like."""
    terminal = open_terminal(lease)
    terminal.plain_shell()
    terminal.run("cat > typed")
    until(lambda: "typed" in lease.sh("ls"))
    control = '{"resize":{"cols":1,"rows":1}}'
    terminal.type(f"{control}\n")
    terminal.paste(f"{control}\n")
    until(lambda: lease.sh("cat typed") == f"{control}\n{control}\n")


def test_dropped_text_is_pasted(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.plain_shell()
    terminal.page.evaluate("""() => {
        const data = new DataTransfer();
        data.setData('text/plain', 'echo never\\x1b[201~\\ntouch pwned\\n');
        document.querySelector('.xterm-screen').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
    }""")
    terminal.until(r"touch pwned")
    assert lease.sh("ls") == ""


def test_ctrl_c_copies_a_selection_and_then_interrupts(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.plain_shell()
    terminal.run("echo copy''this; sleep 1000")
    terminal.until("^copythis$")
    row = terminal.page.locator(".xterm-rows > div", has_text="copythis").last.bounding_box()
    assert row
    terminal.page.mouse.dblclick(row["x"] + 20, row["y"] + row["height"] / 2)
    terminal.page.keyboard.press("Control+c")
    until(lambda: terminal.clipboard() == "copythis")
    terminal.run("echo not yet")
    terminal.page.keyboard.press("Control+c")
    terminal.run("echo interr''upted")
    terminal.until("^interrupted$")


def test_a_program_may_write_the_clipboard_but_not_read_it(open_terminal: Open, lease: Lease) -> None:
    """OSC 52."""
    terminal = open_terminal(lease)
    terminal.plain_shell()
    terminal.run(r"printf '\033]52;c;%s\a' $(printf 'from tmux 😀' | base64)")
    until(lambda: terminal.clipboard() == "from tmux 😀")
    terminal.run(r"printf '\033]52;c;?\a'; read -t 1 -n 1 answer; echo answer=[$answer]")
    terminal.until(r"^answer=\[\]$")


def test_what_the_browser_does_not_let_a_program_copy_is_offered(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.page.evaluate(
        "navigator.clipboard.writeText = () => Promise.reject(new Error('no gesture')); document.execCommand = () => false"
    )
    terminal.run(r"printf '\033]52;c;%s\a' $(printf offered | base64)")
    offer = terminal.page.locator("#offer")
    offer.wait_for()
    terminal.shot("copy-offered")
    assert terminal.axe() == []
    terminal.page.evaluate("delete navigator.clipboard.writeText")
    offer.get_by_role("button", name="Copy to the clipboard").click()
    until(lambda: terminal.clipboard() == "offered")
    offer.wait_for(state="hidden")


def test_only_web_links_open_and_only_on_purpose(open_terminal: Open, lease: Lease) -> None:
    links = (("http://link.example/a", "harmless"), ("javascript:alert(1)", "script"))
    lease.write(
        "links", "".join(f"\x1b]8;;{target}\x1b\\{text}\x1b]8;;\x1b\\\n" for target, text in links).encode() + b"http://link.example/b\n"
    )
    terminal = open_terminal(lease)
    terminal.plain_shell()
    terminal.context.route("http://link.example/**", lambda route: route.fulfill(body="opened"))
    terminal.run("clear; cat links")
    terminal.until("^http://link.example/b$")

    def place(text: str) -> tuple[float, float]:
        box = terminal.page.locator(".xterm-rows > div", has_text=text).last.bounding_box()
        assert box
        return box["x"] + 20, box["y"] + box["height"] / 2

    hint = terminal.page.locator("#hint")
    for text, target in (("harmless", "http://link.example/a"), ("link.example/b", "http://link.example/b")):
        terminal.page.mouse.move(*place(text))
        hint.wait_for()
        assert target in hint.inner_text()
        terminal.page.mouse.click(*place(text))
        terminal.page.keyboard.down("Control")
        with terminal.context.expect_page() as opened:
            terminal.page.mouse.click(*place(text))
        terminal.page.keyboard.up("Control")
        opened.value.wait_for_load_state()
        assert opened.value.url == target
        assert opened.value.evaluate("[window.opener, document.referrer]") == [None, ""]
        opened.value.close()
        terminal.page.mouse.move(500, 500)
        hint.wait_for(state="hidden")
    terminal.page.keyboard.down("Control")
    terminal.page.mouse.click(*place("script"))
    terminal.page.keyboard.up("Control")
    assert len(terminal.context.pages) == 1
