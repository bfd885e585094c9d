"""Files go from the page into the workdir."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from harness.client import Lease
from harness.waiting import until
from playwright.sync_api import Locator, expect

from .terminal import Terminal

Open = Callable[..., Terminal]

DROP = """(files) => {
    const data = new DataTransfer();
    for (const [name, text] of files) data.items.add(new File([text], name));
    const event = (type) => new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true});
    const target = document.querySelector('.xterm-screen');
    target.dispatchEvent(event('dragover'));
    window.veiled = !document.getElementById('drop').hidden;
    target.dispatchEvent(event('drop'));
}"""


def row(terminal: Terminal, name: str) -> Locator:
    return terminal.page.locator("#upload-list li", has_text=name)


def test_dropped_files_are_uploaded(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    names = ["plain.txt", "naïve & 100% #1?.txt", "漢字.md"]
    terminal.page.evaluate(DROP, [[name, f"content of {name}"] for name in names])
    assert terminal.page.evaluate("window.veiled")
    for name in names:
        row(terminal, name).locator(".said", has_text="done").wait_for()
        assert lease.read(name).decode() == f"content of {name}"
    terminal.shot("uploaded")
    assert terminal.axe() == []
    terminal.page.get_by_role("button", name="Close").click()
    terminal.run("ls plain*")  # the focus is back
    terminal.until("^plain.txt$")


def test_files_are_chosen_by_keyboard(open_terminal: Open, lease: Lease, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "random.bin").write_bytes(data)
    terminal = open_terminal(lease)
    terminal.page.on("filechooser", lambda _: None)  # Chromium must know well before the key that choosers are ours
    terminal.page.keyboard.press("Alt+F10")
    expect(terminal.page.locator("#upload")).to_be_focused()
    with terminal.page.expect_file_chooser() as chooser:
        terminal.page.keyboard.press("Enter")
    chooser.value.set_files([tmp_path / "random.bin"])
    row(terminal, "random.bin").locator(".said", has_text="done").wait_for()
    assert lease.read("random.bin") == data


def test_a_file_that_is_too_big_is_refused_in_words_and_the_next_goes_on(open_terminal: Open, lease: Lease, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(5 << 20))
    (tmp_path / "small").write_bytes(b"small")
    terminal = open_terminal(lease)
    terminal.page.locator("#picker").set_input_files([tmp_path / "big", tmp_path / "small"])
    row(terminal, "small").locator(".said", has_text="done").wait_for()
    assert "failed" in row(terminal, "big").inner_text()
    terminal.shot("upload-failed")
    assert lease.sh("ls") == "small\n"
    terminal.problems.clear()  # the browser tells of the refused request


def test_an_upload_shows_its_progress_and_can_be_cancelled(open_terminal: Open, lease: Lease, tmp_path: Path) -> None:
    (tmp_path / "slow").write_bytes(os.urandom(4 << 20))
    (tmp_path / "waits").write_bytes(b"x")
    terminal = open_terminal(lease)
    session = terminal.context.new_cdp_session(terminal.page)
    session.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 100_000},
    )
    terminal.page.locator("#picker").set_input_files([tmp_path / "slow", tmp_path / "waits"])
    until(lambda: terminal.page.locator("#upload-list progress").first.evaluate("bar => bar.value > 0"))
    terminal.shot("uploading")
    assert terminal.axe() == []
    terminal.page.get_by_role("button", name="Cancel the upload of waits").click()
    terminal.page.get_by_role("button", name="Cancel the upload of slow").click()
    for name in ("slow", "waits"):
        row(terminal, name).locator(".said", has_text="cancelled").wait_for()
    assert lease.sh("ls") == ""
