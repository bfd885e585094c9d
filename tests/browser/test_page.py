"""A terminal opens, shows what programs print, and has the window's size. "Check" and a number name acceptance checks of terminals."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from harness.client import Api, Lease
from harness.waiting import until

from .terminal import Terminal

Open = Callable[..., Terminal]
SETTLED = 600  #: ms after which a change of size has been told, if it is told at all

# Prints each text cut at each of its bytes: the two halves go out a while apart, so that they arrive in two frames.
SPLITTER = """
import os, time
for text in ("\\u2014", "\\U0001f600", "\\U0001f004"):
    data = text.encode()
    for cut in range(1, len(data)):
        os.write(1, b"<" + data[:cut])
        time.sleep(0.05)
        os.write(1, data[cut:] + b">\\n")
        time.sleep(0.05)
print("all", "split")
"""

# Asks the terminal where its cursor is behind each text.
WIDTHS = """
import os, re, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
found = []
for text in ("x", "\\u2014", "\\U0001f600", "\\U0001f004", "\\u6f22"):
    os.write(1, b"\\r" + text.encode() + b"\\x1b[6n")
    answer = b""
    while not answer.endswith(b"R"):
        answer += os.read(0, 1)
    found.append(int(re.search(rb";(\\d+)R", answer).group(1)) - 1)
termios.tcsetattr(0, termios.TCSANOW, before)
print("\\rwidths", found)
"""


def told_size(terminal: Terminal) -> tuple[int, int]:
    """Rows and columns as a program in the sandbox is told them now."""
    terminal.run("clear; stty size")
    match = terminal.until(r"^(\d+) (\d+)$")
    return int(match[1]), int(match[2])


def until_size(terminal: Terminal, right: Callable[[int, int], bool]) -> None:
    """Wait until a program in the sandbox is told a size that is ``right``."""
    until(lambda: right(*told_size(terminal)))


def shown_size(terminal: Terminal) -> int:
    """The rows that the page shows."""
    return terminal.page.locator(".xterm-rows > div").count()


def test_types_and_sees_output(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.run("echo $((6 * 7))")
    terminal.until("^42$")
    terminal.run("printf 'Colours: '; for c in 1 2 3 4 5 6; do printf '\\033[3%smcolour %s\\033[m ' $c $c; done; echo — 😀 漢字")
    terminal.until("colour 6 — 😀 漢字$")
    terminal.shot("open-dark")


def test_light(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease, color_scheme="light")
    terminal.run(
        "for c in 1 2 3 4 5 6 7; do printf '\\033[3%smcolour %s\\033[m ' $c $c; done; printf '\\033[38;2;240;240;80mpale\\033[m\\n'"
    )
    terminal.until("colour 7 pale$")
    terminal.shot("open-light")
    terminal.page.get_by_role("button", name="Light or dark").click()
    assert terminal.page.evaluate("document.documentElement.dataset.appearance") == "dark"
    terminal.page.reload()  # the choice is kept, and the ticket, which is spent, is not asked for again
    terminal.page.locator("#ended").wait_for()
    assert terminal.page.evaluate("document.documentElement.dataset.appearance") == "dark"
    terminal.problems.clear()  # the browser tells of the refused handshake


def test_the_first_prompt_has_the_size_of_the_window(open_terminal: Open, lease: Lease) -> None:
    """Check 8: it is told before the shell starts, not by a resize afterwards."""
    terminal = open_terminal(lease)
    rows, cols = told_size(terminal)
    assert rows == shown_size(terminal) > 24 and cols > 80
    assert terminal.resizes() == []
    (address,) = [address for address in terminal.addresses if address.startswith("ws")]
    query = parse_qs(urlsplit(address).query)
    assert (query["rows"], query["cols"], query["flow"]) == ([str(rows)], [str(cols)], ["1"])


def test_the_ticket_leaves_the_address_bar(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease, "kept")
    assert urlsplit(terminal.page.url).query == "arg=kept"


@pytest.mark.parametrize("arg", ["", "sized"], ids=["shell", "tmux"])
@pytest.mark.parametrize("runtime", ["runc", "gvisor"])
def test_resize(open_terminal: Open, host_api: Api, runtime: str, arg: str) -> None:
    """Check 7, inside tmux too: the program is told the new size, and the page shows the same."""
    lease = host_api.create(runtime=runtime)
    terminal = open_terminal(lease, arg)
    before = told_size(terminal)
    terminal.page.set_viewport_size({"width": 1300, "height": 800})
    until_size(terminal, lambda rows, cols: rows > before[0] and cols > before[1])
    status_line = 1 if arg else 0
    assert told_size(terminal)[0] == shown_size(terminal) - status_line
    terminal.page.set_viewport_size({"width": 500, "height": 300})
    until_size(terminal, lambda rows, cols: rows < before[0] and cols < before[1])
    lease.end()


def test_dragging_the_window_sends_few_resizes(open_terminal: Open, lease: Lease) -> None:
    """Check 9: 10 at most in 2 s, and none twice."""
    terminal = open_terminal(lease)
    for step in range(60):
        terminal.page.set_viewport_size({"width": 700 + 8 * step, "height": 500 + 3 * step})
    terminal.page.wait_for_timeout(SETTLED)
    sent = terminal.resizes()
    moments = terminal.page.evaluate("sent_at")
    assert sent
    assert all(later - first > 2000 for first, later in zip(moments, moments[10:], strict=False)), moments
    assert all(one != other for one, other in zip(sent, sent[1:], strict=False))
    last = json.loads(sent[-1])["resize"]
    assert told_size(terminal) == (last["rows"], last["cols"])


def test_a_hidden_tab_sends_no_resize(open_terminal: Open, lease: Lease) -> None:
    """Check 8. When it is shown again, it tells the size that it then has."""
    terminal = open_terminal(lease)
    before = told_size(terminal)
    terminal.page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.hide, configurable: true}); window.hide = true")
    terminal.page.set_viewport_size({"width": 800, "height": 500})
    terminal.page.wait_for_timeout(SETTLED)
    assert terminal.resizes() == []
    terminal.page.evaluate("window.hide = false; document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: len(terminal.resizes()) == 1)
    until_size(terminal, lambda rows, cols: rows < before[0] and cols < before[1])


def test_an_element_without_a_size_sends_none(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.page.evaluate("document.querySelector('main').hidden = true")
    terminal.page.wait_for_timeout(SETTLED)
    terminal.page.evaluate("document.querySelector('main').hidden = false")
    terminal.page.wait_for_timeout(SETTLED)
    assert terminal.resizes() == []


def test_characters_cut_between_frames_are_whole(open_terminal: Open, lease: Lease) -> None:
    """Check 5: each of "—", 😀 and 🀄, cut at each of its bytes."""
    lease.write("split.py", SPLITTER.encode())
    terminal = open_terminal(lease)
    terminal.run("clear; python3 split.py")
    terminal.until("^all split$")
    assert [row for row in terminal.text().splitlines() if row.startswith("<")] == ["<—>"] * 2 + ["<😀>"] * 3 + ["<🀄>"] * 3


def test_widths_are_those_of_unicode_11(open_terminal: Open, lease: Lease) -> None:
    lease.write("widths.py", WIDTHS.encode())
    terminal = open_terminal(lease)
    terminal.run("python3 widths.py")
    terminal.until(r"^widths \[1, 1, 2, 2, 2\]$")


def test_a_flood_is_shown_to_its_end(open_terminal: Open, lease: Lease) -> None:
    """More than the server may leave unacknowledged, many times."""
    terminal = open_terminal(lease)
    terminal.run("seq 1500000; echo flood''ed")
    terminal.until("^1500000$")
    terminal.until("^flooded$")


def test_a_flood_can_be_interrupted(open_terminal: Open, lease: Lease) -> None:
    """Check 3."""
    terminal = open_terminal(lease)
    terminal.run("yes")
    terminal.until("^y$")
    terminal.page.keyboard.press("Control+c")
    terminal.run("echo still''here")
    terminal.until("^stillhere$")


@pytest.mark.parametrize("runtime", ["runc", "gvisor"])
def test_a_named_session_is_found_again(open_terminal: Open, host_api: Api, runtime: str) -> None:
    """Check 15: the same screen, at the size of the window that now shows it; and two at once."""
    lease = host_api.create(runtime=runtime)
    first = open_terminal(lease, "work")
    first.run("echo remem''bered; stty size")
    first.until("^remembered$")
    first.check_and_close()
    second = open_terminal(lease, "work", viewport={"width": 800, "height": 500})
    second.until("^remembered$")
    until_size(second, lambda rows, _: rows == shown_size(second) - 1)
    third = open_terminal(lease, "work", viewport={"width": 800, "height": 500})
    third.run("echo to bo''th")
    third.until("^to both$")
    second.until("^to both$")
    lease.end()


def test_leaving_asks_while_the_terminal_is_open(open_terminal: Open, lease: Lease) -> None:
    """A shell's Ctrl-W is a browser's too."""
    terminal = open_terminal(lease)
    asked: list[str] = []
    terminal.page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    terminal.run("echo typed")
    terminal.page.close(run_before_unload=True)
    until(lambda: (terminal.run("true"), asked)[1])
    assert asked == ["beforeunload"]
    terminal.run("exit")
    terminal.page.locator("#ended").wait_for()
    with terminal.page.expect_event("close"):
        terminal.page.close(run_before_unload=True)
    assert asked == ["beforeunload"]
