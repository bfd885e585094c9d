"""The page for those who use a keyboard only, a screen reader, an input method, or a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.client import Lease
from harness.waiting import until

from .terminal import Terminal
from .test_page import told_size

Open = Callable[..., Terminal]
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 760}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing(open_terminal: Open, lease: Lease, scheme: str) -> None:
    terminal = open_terminal(lease, f"main-{scheme}", color_scheme=scheme)
    terminal.run(
        "for c in 0 1 2 3 4 5 6 7; do printf '\\033[3%sm colour %s \\033[9%smcolour 9%s\\033[m\\n' $c $c $c $c; done; echo rea''dy"
    )
    terminal.until("^ready$")
    assert terminal.axe() == []
    terminal.shot(f"tmux-{scheme}")
    terminal.page.get_by_role("button", name="Help").click()
    assert terminal.axe() == []
    terminal.shot(f"help-{scheme}")
    terminal.page.keyboard.press("Escape")
    until(lambda: terminal.page.evaluate("document.activeElement.className").startswith("xterm"))
    terminal.page.get_by_role("button", name="Screen reader mode").click()  # by the mouse: the focus stays in the terminal
    terminal.run("echo read''er")
    terminal.until("^reader$")
    assert terminal.axe() == []


def test_everything_by_keyboard(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    before = told_size(terminal)
    keyboard = terminal.page.keyboard

    def focused() -> str:
        return str(terminal.page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent"))

    keyboard.press("Tab")  # is the shell's
    assert "Terminal input" in focused()
    keyboard.press("Alt+F10")
    reached = [focused()]
    for _ in range(5):
        keyboard.press("Tab")
        reached.append(focused())
    assert reached == ["Upload files", "Smaller text", "Larger text", "Light or dark", "Screen reader mode", "Help"]
    terminal.page.get_by_role("button", name="Larger text").focus()
    for _ in range(4):
        keyboard.press("Enter")
    keyboard.press("Escape")
    assert "Terminal input" in focused()
    until(lambda: told_size(terminal) < before)
    keyboard.press("Alt+F10")
    keyboard.press("Shift+Tab")
    assert "Terminal input" in focused()
    terminal.page.get_by_role("button", name="Help").focus()
    keyboard.press("Enter")
    assert terminal.page.get_by_role("dialog").is_visible()
    keyboard.press("Escape")
    until(lambda: "Terminal input" in focused())
    terminal.run("echo ba''ck")
    terminal.until("^back$")


def test_a_screen_reader_is_told_the_output(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    button = terminal.page.get_by_role("button", name="Screen reader mode")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    terminal.run("echo spo''ken")
    terminal.page.locator(".xterm-accessibility [aria-live]", has_text="spoken").wait_for(state="attached")
    terminal.page.locator(".xterm-accessibility-tree", has_text="spoken").wait_for(state="attached")
    assert terminal.page.locator("#state").get_attribute("role") == "status"


def test_an_input_method_types_once(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.run("cat > typed")
    until(lambda: "typed" in lease.sh("ls"))
    session = terminal.context.new_cdp_session(terminal.page)
    for text in ("に", "にほ", "にほん"):
        session.send("Input.imeSetComposition", {"text": text, "selectionStart": len(text), "selectionEnd": len(text)})
    session.send("Input.insertText", {"text": "日本"})
    terminal.until("^日本$")
    terminal.run("")
    until(lambda: lease.sh("cat typed") == "日本\n")


def test_a_phones_keyboard_types_once(open_terminal: Open, lease: Lease) -> None:
    """Many tell no key but 229, and change the text field; they must not correct or capitalise either."""
    terminal = open_terminal(lease, **PHONE)
    field = terminal.page.locator(".xterm-helper-textarea")
    wanted = {"autocapitalize": "off", "autocorrect": "off", "autocomplete": "off", "spellcheck": "false"}
    assert {name: field.get_attribute(name) for name in wanted} == wanted
    terminal.run("cat > typed")
    until(lambda: "typed" in lease.sh("ls"))
    field.focus()
    session = terminal.context.new_cdp_session(terminal.page)

    def press(method: str, **parameters: Any) -> None:
        key = {"windowsVirtualKeyCode": 229, "key": "Unidentified"}
        session.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **key})
        session.send(method, parameters)
        session.send("Input.dispatchKeyEvent", {"type": "keyUp", **key})

    for letter in "hel":  # keys that change the field at once
        press("Input.insertText", text=letter)
    for part in ("l", "lo", "lo th"):  # a word that is composed, and a space in the same breath
        press("Input.imeSetComposition", text=part, selectionStart=len(part), selectionEnd=len(part))
    session.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", "windowsVirtualKeyCode": 229, "key": "Unidentified"})
    session.send("Input.insertText", {"text": "lo there"})
    session.send("Input.insertText", {"text": " "})
    press("Input.insertText", text="x")
    press("Input.dispatchKeyEvent", type="rawKeyDown", windowsVirtualKeyCode=229, key="Unidentified", commands=["deleteBackward"])
    terminal.until("^hello there$")
    terminal.run("")
    until(lambda: lease.sh("cat typed") == "hello there \n")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_phone(open_terminal: Open, lease: Lease, scheme: str) -> None:
    terminal = open_terminal(lease, color_scheme=scheme, **PHONE)
    rows, cols = told_size(terminal)
    assert rows > 20 and 30 < cols < 60
    assert terminal.page.evaluate("document.documentElement.scrollWidth") == 390
    keys = terminal.page.locator("#keys")
    terminal.run("clear; echo clea''red; cat")
    terminal.until("^cleared$")
    terminal.run("heard")
    until(lambda: terminal.text().count("heard") == 2)  # before it runs, the shell is what Ctrl-C interrupts
    keys.get_by_role("button", name="Ctrl").tap()
    assert keys.get_by_role("button", name="Ctrl").get_attribute("aria-pressed") == "true"
    terminal.type("c")
    assert keys.get_by_role("button", name="Ctrl").get_attribute("aria-pressed") == "false"
    terminal.run("echo interr''upted")
    terminal.until("^interrupted$")
    keys.get_by_role("button", name="Up").tap()
    terminal.run("")
    until(lambda: terminal.text().count("\ninterrupted\n") == 2)
    terminal.page.evaluate("navigator.clipboard.writeText('echo past')")
    keys.get_by_role("button", name="Paste").tap()
    terminal.until("echo past$")
    terminal.run("ed; ls --color /")
    terminal.until("^pasted$")
    terminal.until("^usr|usr$|usr ")
    terminal.shot(f"phone-{scheme}")
    assert terminal.axe() == []
    terminal.run("exit")
    terminal.page.locator("#ended").wait_for()
    terminal.shot(f"phone-ended-{scheme}")
    assert terminal.axe() == []


def test_a_finger_scrolls(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease, **PHONE)
    terminal.run("seq 300; echo rea''dy")
    terminal.until("^ready$")
    session = terminal.context.new_cdp_session(terminal.page)
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": 150, "y": 200}]})
    for y in range(210, 620, 10):
        session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": 150, "y": y}]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    until(lambda: "ready" not in terminal.text())
