"""What a terminal does once it is open. The numbers are those of the acceptance checks that the tests show."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable

import pytest
from harness.client import Lease
from harness.server import Server
from harness.waiting import until

from .client import Terminal

PROCESSES = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done"


def running(lease: Lease, text: str) -> int:
    """How many processes of the sandbox have ``text`` in their command line."""
    return sum(text in line and "/proc/" not in line for line in lease.sh(PROCESSES).splitlines())


def test_check_8_the_first_prompt_has_the_windows_size(box: Lease) -> None:
    with Terminal(box, rows=43, cols=132) as terminal:
        assert terminal.plain().run("stty size").strip() == b"43 132"


def test_check_7_a_resize_reaches_the_program(box: Lease) -> None:
    with Terminal(box) as terminal:
        terminal.plain()
        assert terminal.run("stty size").strip() == b"24 80"
        terminal.type(b"trap 'stty size; printf \"<%s>\" winch' WINCH; printf '<%s>' armed\n")
        terminal.until(b"<armed>")
        terminal.resize(132, 43)
        terminal.type(b"\n")
        assert b"43 132" in terminal.until(b"<winch>")


def test_check_7_a_resize_reaches_the_program_in_a_session(box: Lease) -> None:
    with Terminal(box, arg="sized") as terminal:
        terminal.type(b"clear; trap 'stty size; printf \"<%s>\" winch' WINCH; printf '<%s>' armed\r")
        terminal.until(b"<armed>")
        terminal.resize(132, 43)
        assert b"42 132" in terminal.until(b"<winch>")  # tmux keeps a line for itself
    box.exec("tmux", "kill-server")


def test_check_10_a_bad_resize_harms_nothing_and_is_never_typed(box: Lease) -> None:
    with Terminal(box) as terminal:
        terminal.plain()
        for cols, rows in ((0, 0), (-1, 5), (10**9, 10**9), (True, False), ("80", "24"), (1.5, 2), (None, None), ({}, [])):
            terminal.resize(cols, rows)
        terminal.control(resize=None)
        terminal.control(resize=[80, 24])
        assert terminal.run("stty size").strip() in (b"1000 1000", b"5 1")
        terminal.resize(100, 30)
        assert terminal.run("stty size").strip() == b"30 100"


def test_check_11_a_literal_resize_in_a_binary_frame_is_typed(box: Lease) -> None:
    literal = b'{"resize":{"cols":1,"rows":1}}'
    with Terminal(box) as terminal:
        terminal.plain()
        terminal.type(b"printf '<%%s>' go; head -c %d; printf '<%%s>' read\n" % len(literal))
        terminal.until(b"<go>")
        terminal.type(literal)
        assert terminal.until(b"<read>") == literal
        assert terminal.run("stty size").strip() == b"24 80"


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '{"resize": 1, "x": 2}', "[1]", "ß😀"])
def test_other_text_is_typed(box: Lease, text: str) -> None:
    with Terminal(box) as terminal:
        terminal.plain()
        size = len(text.encode())
        terminal.type(b"printf '<%%s>' go; head -c %d; printf '<%%s>' read\n" % size)
        terminal.until(b"<go>")
        terminal.socket.send(text)
        assert terminal.until(b"<read>") == text.encode()


def test_check_12_the_last_output_and_the_exit_are_told(box: Lease) -> None:
    with Terminal(box) as terminal:
        terminal.type(b"printf la''st; exit 3\n")
        code, reason, output = terminal.closed()
    assert (code, reason) == (1000, "exited with code 3")
    assert b"last" in output
    assert output.endswith(b"\r\n[exited with code 3]\r\n")


def test_a_shell_that_is_killed_says_so(box: Lease) -> None:
    with Terminal(box) as terminal:
        terminal.type(b"kill -9 $$\n")
        code, reason, _ = terminal.closed()
    assert (code, reason) == (1000, "ended by signal 9 (SIGKILL)")


def test_check_6_bytes_arrive_exactly(box: Lease) -> None:
    data = os.urandom(1 << 20)
    box.write("random", data)
    with Terminal(box) as terminal:
        terminal.plain()
        terminal.type(b"printf '<%s>' go; cat random\n")
        terminal.until(b"<go>")
        assert terminal.exactly(len(data)) == data


def test_check_16_a_paste_arrives_exactly(box: Lease) -> None:
    lines = b"".join(b"%06d %s\n" % (number, b"x" * 1000) for number in range(256))
    with Terminal(box) as terminal:
        terminal.plain()
        terminal.type(b"stty -raw -echo; printf '<%%s>' go; head -c %d >pasted; printf '<%%s>' taken\n" % len(lines))
        terminal.until(b"<go>")
        for start in range(0, len(lines), 32_768):
            terminal.type(lines[start : start + 32_768])
        terminal.until(b"<taken>")
    assert hashlib.sha256(box.read("pasted")).digest() == hashlib.sha256(lines).digest()


def test_signals_go_through_the_line_discipline(box: Lease) -> None:
    with Terminal(box) as terminal:
        terminal.type(b"sh -c 'printf \"<%s>\" sleeping; exec sleep 4567'\n")
        terminal.until(b"<sleeping>")
        terminal.type(b"\x03")
        terminal.type(b"printf '<%s>' prompt\n")
        terminal.until(b"<prompt>")
    assert running(box, "sleep 4567") == 0


def test_check_3_a_flood_is_interrupted(box: Lease) -> None:
    with Terminal(box) as terminal:
        terminal.type(b"yes\n")
        for _ in range(20):
            terminal.receive()
        terminal.type(b"\x03")
        terminal.type(b"printf '<%s>' prompt\n")
        terminal.until(b"<prompt>")


def test_check_14_a_closed_tab_leaves_no_process(box: Lease) -> None:
    terminal = Terminal(box)
    terminal.type(b"sleep 7654 & nohup setsid sleep 7654 & (env -i setsid sleep 7654 &) ; printf '<%s>' begun\n")
    terminal.until(b"<begun>")
    until(lambda: running(box, "sleep 7654") == 3)
    terminal.socket.socket.close()  # without a goodbye
    until(lambda: running(box, "sleep 7654") == 0)


def test_checks_14_and_15_a_named_session_outlives_its_terminal(box: Lease) -> None:
    with Terminal(box, arg="work") as terminal:
        terminal.type(b"sleep 8765 &\r clear; printf '<%s>' one\r")
        terminal.until(b"<one>")
    until(lambda: running(box, "attach-session") == 0)
    assert running(box, "sleep 8765") == 1
    with Terminal(box, arg="work", rows=50, cols=120) as again, Terminal(box, arg="work", rows=50, cols=120) as beside:
        again.until(b"<one>")
        beside.until(b"<one>")
        again.type(b"clear; stty size; printf '<%s>' two\r")
        assert b"49 120" in again.until(b"<two>")  # tmux keeps a line for itself
        beside.until(b"<two>")
    box.exec("tmux", "kill-server")


def test_other_terminals_are_never_touched(box: Lease) -> None:
    with Terminal(box) as first:
        first.plain()
        with Terminal(box) as second:
            second.plain()
        assert box.api.post("/sandboxes/stop", {"id": box.id}).json() == {"stopped": 0}
        assert first.run("printf alive") == b"alive"


def test_a_terminal_knows_where_it_is(box: Lease) -> None:
    with Terminal(box) as terminal:
        answer = terminal.plain().run('printf "%s|%s|%s|%s|" "$TERM" "$LANG" "$HOME" "$PWD"; id -u; tty')
    term, language, home, here, rest = answer.decode().split("|")
    assert (term, language, home, here) == ("xterm-256color", "C.UTF-8", "/mnt/data", "/mnt/data")
    uid, name = rest.split()
    assert uid == "1000"
    assert name.startswith("/dev/pts/")


def test_a_lease_that_ends_says_so(fresh: Callable[..., Lease]) -> None:
    lease = fresh()
    with Terminal(lease) as terminal:
        terminal.plain()
        lease.end()
        code, reason, _ = terminal.closed()
    assert (code, reason) == (4001, "the lease has ended: ended by its holder")


def test_a_lease_that_staff_reap_says_so(server: Server, fresh: Callable[..., Lease]) -> None:
    lease = fresh()
    with Terminal(lease) as terminal:
        terminal.plain()
        code = "from sandboxes.lifecycle import transitions; from sandboxes.models import Sandbox; "
        code += f"transitions.begin_end(Sandbox.objects.get(pk='{lease.id}'), reason='reaped by staff', actor='staff test')"
        server.manage("shell", "-c", code)  # another process, as another replica would
        assert terminal.closed()[:2] == (4002, "ended by staff")


def test_check_13_a_sandbox_that_dies_says_so(server: Server, fresh: Callable[..., Lease]) -> None:
    lease = fresh()
    with Terminal(lease) as terminal:
        terminal.plain()
        os.kill(server.traces.init_pid(lease.container), signal.SIGKILL)
        code, reason, _ = terminal.closed()
    assert code == 4003
    assert reason.startswith("the sandbox died: ")


def test_an_open_terminal_counts_as_connected_and_typing_as_use(fresh: Callable[..., Lease]) -> None:
    lease = fresh()
    before = lease.status()["lastUsedAt"]
    with Terminal(lease) as terminal:
        terminal.plain()
        until(lambda: "connectedAt" in lease.status())
    assert lease.status()["lastUsedAt"] >= before


# flow=1, the way of our own page


def test_with_flow_output_waits_for_acknowledgements(box: Lease) -> None:
    with Terminal(box, flow=1) as terminal:
        terminal.type(b"stty raw; head -c 4000000 /dev/zero; printf '<%s>' end\n")
        taken = 0
        while b"\0<end>" not in terminal.seen:
            frame = terminal.receive()
            terminal.seen = terminal.seen[-8:] + frame
            taken += len(frame)
            terminal.control(ack=len(frame))
    assert taken > 4_000_000
    assert terminal.told[0]["upload"].startswith(f"/v1/sandboxes/{box.id}/terminal/upload?token=")


def test_with_flow_no_more_than_the_window_is_sent_unacknowledged(box: Lease) -> None:
    with Terminal(box, flow=1) as terminal:
        terminal.type(b"stty raw; cat /dev/zero\n")
        taken = 0
        with pytest.raises(TimeoutError):
            while True:  # silence is what is waited for
                frame = terminal.socket.recv(timeout=3)
                taken += len(frame) if isinstance(frame, bytes) else 0
    assert 256 * 1024 < taken <= 512 * 1024


def test_with_flow_typing_is_acknowledged(box: Lease) -> None:
    with Terminal(box, flow=1) as terminal:
        terminal.type(b"printf '<%s>' typed\n")
        terminal.until(b"<typed>")
        acknowledged = sum(told.get("ack", 0) for told in terminal.told)
    assert acknowledged == len(b"printf '<%s>' typed\n")


@pytest.mark.parametrize("ack", [0, -5, 10**30, "1", None, True, 1.5])
def test_with_flow_a_senseless_ack_is_dropped(box: Lease, ack: object) -> None:
    with Terminal(box, flow=1) as terminal:
        terminal.socket.send(json.dumps({"ack": ack}))
        terminal.type(b"printf '<%s>' alive\n")
        terminal.until(b"<alive>")


def test_without_flow_an_ack_is_text_like_any_other(box: Lease) -> None:
    with Terminal(box) as terminal:
        terminal.plain()
        terminal.type(b"printf '<%s>' go; head -c 9; printf '<%s>' read\n")
        terminal.until(b"<go>")
        terminal.socket.send('{"ack":1}')
        assert terminal.until(b"<read>") == b'{"ack":1}'


def test_the_page_uploads_while_its_terminal_is_open(box: Lease) -> None:
    with Terminal(box, flow=1) as terminal:
        terminal.type(b"printf '<%s>' up\n")
        terminal.until(b"<up>")
        address = terminal.told[0]["upload"].removeprefix("/v1")
        keyless = type(box.api)(box.api.url, None)
        done = keyless.post(f"{address}&path=dropped%20file.txt", data=b"content")
        assert (done.status_code, done.json()) == (200, {"path": "/mnt/data/dropped file.txt", "bytes": 7})
        keyless.refuses(400, "path_refused", "POST", f"{address}&path=../x", data=b"")
        foreign = keyless.post(f"{address}&path=x", data=b"", headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
    assert box.read("dropped file.txt") == b"content"
    until(lambda: keyless.post(f"{address}&path=late", data=b"").status_code == 401)
