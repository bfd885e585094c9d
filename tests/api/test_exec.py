"""POST /v1/sandboxes/{id}/exec: what a command gets, and what its caller is told."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from typing import Any

import pytest
from harness.client import Api, Lease, decoded
from harness.limits import EXEC_TIMEOUT, MIB
from harness.waiting import at_once, until

MARKER = "\n[truncated at 1MiB]"
PROCESSES = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$file 2>/dev/null; echo; done"


class Signals:
    """FIFOs in a sandbox: a command says that it runs, and its end is heard, without anybody's clock."""

    def __init__(self, box: Lease) -> None:
        self.box = box
        self.name = f"/tmp/{secrets.token_hex(8)}"
        box.sh(f"mkfifo {self.name}.began {self.name}.ended")

    def wrap(self, command: str) -> str:
        """A shell line that opens ``ended`` for as long as anything of it lives, tells ``began``, and goes on with ``command``."""
        return f"exec 3<>{self.name}.ended; echo began >{self.name}.began; {command}"

    def wait_begun(self) -> None:
        assert self.box.sh(f"head -n 1 {self.name}.began", timeoutSec=60) == "began\n"

    def wait_ended(self) -> None:
        """Nobody has ``ended`` open any more: opening it for writing only fails then."""
        script = f"import os; os.close(os.open({self.name + '.ended'!r}, os.O_WRONLY | os.O_NONBLOCK))"
        until(lambda: self.box.exec("python3", "-c", script)["exitCode"] != 0)


def test_argv(box: Lease) -> None:
    assert box.exec("echo", "a b", "*", "") == {
        "exitCode": 0,
        "stdout": "a b * \n",
        "stderr": "",
        "stdoutTruncated": False,
        "stderrTruncated": False,
        "timeoutSec": EXEC_TIMEOUT,
    }


def test_command_is_a_line_for_the_shell(box: Lease) -> None:
    result = box.exec(command="printf '%s' $((6 * 7)); echo no >&2; exit 3")
    assert (result["exitCode"], result["stdout"], result["stderr"]) == (3, "42", "no\n")


def test_argv_wins_over_command(one_box: Lease) -> None:
    assert one_box.exec("echo", "argv", command="echo command")["stdout"] == "argv\n"


@pytest.mark.parametrize("body", [{}, {"command": " \n"}, {"argv": []}, {"argv": [""]}, {"argv": None, "command": None}])
def test_one_of_both_is_needed(one_box: Lease, body: dict[str, Any]) -> None:
    one_box.api.refuses(400, "command_required", "POST", f"{one_box.path}/exec", json=body)


@pytest.mark.parametrize("code", [0, 1, 126, 127, 128, 255])
def test_every_exit_code_is_a_success_of_the_call(box: Lease, code: int) -> None:
    result = box.exec("sh", "-c", f"exit {code}")
    assert result["exitCode"] == code
    assert "signal" not in result
    assert "startError" not in result


@pytest.mark.parametrize(("name", "number"), [("KILL", 9), ("TERM", 15), ("SEGV", 11)])
def test_death_by_a_signal(box: Lease, name: str, number: int) -> None:
    result = box.exec("sh", "-c", f"kill -{name} $$")
    assert (result["exitCode"], result["signal"]) == (128 + number, number)


def test_a_program_that_is_not_there(box: Lease) -> None:
    for program in ("no-such-program", "/no/such/program", "./here"):
        result = box.exec(program)
        assert (result["exitCode"], result["stdout"]) == (127, "")
        assert result["startError"] and result["startError"] in result["stderr"]


def test_a_program_that_cannot_be_executed(box: Lease) -> None:
    box.write("plain", b"#!/bin/sh\necho no\n")
    for program in ("./plain", "/etc", "/etc/passwd"):
        result = box.exec(program)
        assert (result["exitCode"], result["stdout"]) == (126, "")
        assert result["startError"] and result["startError"] in result["stderr"]


def test_a_program_of_the_workdir(box: Lease) -> None:
    box.write("run me", b"#!/bin/sh\necho run $1\n")
    box.sh("chmod 755 'run me'")
    assert box.exec("./run me", "it")["stdout"] == "run it\n"
    assert box.exec("../run me", "it", dir="/mnt/data/sub")["exitCode"] == 126
    box.sh("mkdir sub")
    assert box.exec("../run me", "it", dir="sub")["stdout"] == "run it\n"


def test_dir(box: Lease) -> None:
    box.sh("mkdir -p 'a b/c'; echo >file")
    assert box.sh("pwd") == "/mnt/data\n"
    assert box.sh("pwd", dir="") == "/mnt/data\n"
    assert box.sh("pwd", dir="a b/c") == "/mnt/data/a b/c\n"
    assert box.sh("pwd", dir="/mnt/data/a b") == "/mnt/data/a b\n"
    assert box.sh("pwd", dir="/tmp") == "/tmp\n"


@pytest.mark.parametrize("directory", ["missing", "file", "/root/x", "file/x", "x" * 300])
def test_a_dir_that_is_none(box: Lease, directory: str) -> None:
    box.write("file", b"")
    result = box.exec("true", dir=directory)
    assert result["exitCode"] == 126
    assert result["startError"]


def test_environment(box: Lease) -> None:
    found = dict(line.split("=", 1) for line in box.sh("env").splitlines())
    assert found.pop("PWD", "/mnt/data") == "/mnt/data"
    assert found == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/mnt/data",
        "USER": "sandbox",
        "LANG": "C.UTF-8",
    }


def test_env_adds_and_replaces(box: Lease) -> None:
    values = {"A": "b c\n=\"'$HOME", "EMPTY": "", "HOME": "/tmp", "_x1": "é"}
    assert box.sh('printf "%s|" "$A" "$EMPTY" "$HOME" "$_x1"', env=values) == "b c\n=\"'$HOME||/tmp|é|"


@pytest.mark.parametrize(
    "env", [{"": "x"}, {"A=B": "x"}, {"1A": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"A": 1}, {"A": None}, ["A=x"], {"é": "x"}]
)
def test_env_that_is_none(one_box: Lease, env: Any) -> None:
    one_box.api.refuses(400, "invalid_body", "POST", f"{one_box.path}/exec", json={"argv": ["true"], "env": env})


def test_path_of_env_finds_the_program(box: Lease) -> None:
    box.sh("mkdir bin; printf '#!/bin/sh\\necho mine\\n' >bin/mine; chmod 755 bin/mine")
    assert box.exec("mine", env={"PATH": "/mnt/data/bin:/bin"})["stdout"] == "mine\n"


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 3 * MIB])
def test_stdin(box: Lease, size: int) -> None:
    text = ("line ~\n" * (size // 7 + 1))[:size]
    result = box.exec("cksum", stdin=text)
    box.write("same", text.encode())
    assert result["stdout"].split() == box.sh("cksum <same").split()


def test_stdin_ends_when_there_is_none(box: Lease) -> None:
    assert box.exec("cat")["stdout"] == ""


def test_stdin_that_nobody_reads(box: Lease) -> None:
    assert box.exec("true", stdin="x" * 2 * MIB)["exitCode"] == 0


def test_all_bytes_in_base64(box: Lease) -> None:
    everything = bytes(range(256)) * 16
    box.write("bytes", everything)
    result = box.exec("sh", "-c", "cat bytes; cat bytes >&2", encoding="base64")
    assert (decoded(result["stdout"]), decoded(result["stderr"]), result["encoding"]) == (everything, everything, "base64")


def test_what_is_not_utf8_is_replaced(box: Lease) -> None:
    assert box.exec("printf", r"a\377b\303\251")["stdout"] == "a\ufffdbé"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_one_mebibyte_is_whole(box: Lease, stream: str) -> None:
    redirect = "" if stream == "stdout" else ">&2"
    result = box.exec(command=f"head -c {MIB} /dev/zero | tr '\\0' x {redirect}")
    assert result[stream] == "x" * MIB
    assert (result["stdoutTruncated"], result["stderrTruncated"]) == (False, False)


@pytest.mark.parametrize("more", [1, 20 * MIB])
def test_more_than_one_mebibyte_is_cut(box: Lease, more: int) -> None:
    result = box.exec(command=f"head -c {MIB + more} /dev/zero | tr '\\0' x; echo end >&2; exit 5")
    assert result["stdout"] == "x" * MIB + MARKER
    assert (result["stdoutTruncated"], result["stderrTruncated"]) == (True, False)
    assert (result["stderr"], result["exitCode"]) == ("end\n", 5)


def test_base64_has_no_marker(box: Lease) -> None:
    result = box.exec(command=f"head -c {MIB + 1} /dev/zero", encoding="base64")
    assert decoded(result["stdout"]) == bytes(MIB)
    assert result["stdoutTruncated"] is True


def test_a_deadline_ends_all_that_the_command_started(box: Lease) -> None:
    command = 'echo begun; echo why >&2; sleep 99 & setsid sleep 98 & env -i setsid sh -c "sleep 97 &"; sleep 96'
    problem = box.api.refuses(504, "timeout", "POST", f"{box.path}/exec", json={"command": command, "timeoutSec": 2})
    assert (problem["stdout"], problem["stderr"]) == ("begun\n", "why\n")
    assert (problem["stdoutTruncated"], problem["stderrTruncated"], problem["timeoutSec"]) == (False, False, 2)
    assert "sleep 9" not in box.sh(PROCESSES)


def test_a_deadline_of_a_flood(box: Lease) -> None:
    problem = box.api.refuses(504, "timeout", "POST", f"{box.path}/exec", json={"argv": ["yes"], "timeoutSec": 1})
    assert problem["stdout"] == ("y\n" * MIB)[:MIB] + MARKER
    assert problem["stdoutTruncated"] is True


@pytest.mark.parametrize(("asked", "applied"), [(None, EXEC_TIMEOUT), (0, EXEC_TIMEOUT), (-5, EXEC_TIMEOUT), (7, 7), (10**9, EXEC_TIMEOUT)])
def test_timeout_applied(one_box: Lease, asked: int | None, applied: int) -> None:
    assert one_box.exec("true", timeoutSec=asked)["timeoutSec"] == applied


def test_a_process_left_in_the_background_does_not_hold_the_answer(box: Lease) -> None:
    result = box.exec(command="sleep 95 & echo done")
    assert (result["exitCode"], result["stdout"]) == (0, "done\n")
    assert "sleep 95" in box.sh(PROCESSES)
    box.sh("pkill -f 'sleep 9[5]' || kill $(grep -l 'sleep.95' /proc/[0-9]*/cmdline | cut -d / -f 3)")


def test_a_hang_up_ends_the_command(box: Lease) -> None:
    signals = Signals(box)
    connection = box.api.connection()
    body = json.dumps({"command": signals.wrap("setsid sleep 94 & sleep 94")})
    connection.request("POST", f"/v1{box.path}/exec", body, {"Authorization": f"Bearer {box.api.key}"})
    signals.wait_begun()
    connection.close()
    signals.wait_ended()
    assert "sleep 94" not in box.sh(PROCESSES)


def test_stop_ends_every_command_and_keeps_the_sandbox(box: Lease) -> None:
    signals = [Signals(box) for _ in range(3)]
    problems: list[dict[str, Any]] = []

    def run(number: int) -> None:
        body = {"id": box.id, "command": signals[number].wrap("echo so far; exec 3>&-; setsid sleep 93 & sleep 93")}
        problems.append(box.api.refuses(502, "stopped", "POST", "/sandbox/run", json=body))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for signal in signals:
        signal.wait_begun()
    until(lambda: box.sh(PROCESSES).count("sleep 93") >= 6)
    response = box.api.post("/sandbox/stop", {"id": box.id})
    assert (response.status_code, response.json()) == (200, {"stopped": 3})
    for thread in threads:
        thread.join()
    assert [problem["stdout"] for problem in problems] == ["so far\n"] * 3
    assert "sleep 93" not in box.sh(PROCESSES)
    response = box.api.post("/sandbox/stop", {"id": box.id})
    assert (response.status_code, response.json()) == (200, {"stopped": 0})


def test_many_at_once(box: Lease) -> None:
    results = at_once(40, lambda number: box.exec("sh", "-c", f"sleep 0.5; echo {number}; exit {number}"))
    assert [(result["stdout"], result["exitCode"]) for result in results] == [(f"{number}\n", number) for number in range(40)]


def test_body_id_is_ignored(one_box: Lease) -> None:
    assert one_box.exec("true", id="m_000000000000000000000000")["exitCode"] == 0


def test_nothing_of_the_host_is_inside(box: Lease, api: Api) -> None:
    assert box.sh("id -u") == "1000\n"
    assert box.exec("touch", "/usr/x", "/x", "/etc/x")["exitCode"] != 0
    assert box.exec("python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 80), 2)")["exitCode"] != 0
    assert box.sh("ls -A /root 2>/dev/null || true") == ""


def test_a_command_that_is_too_long(box: Lease) -> None:
    result = box.exec("echo", "x" * 200_000)
    assert (result["exitCode"], result["stdout"]) == (126, "")
    assert result["startError"]
    response = box.api.post(f"{box.path}/exec", {"argv": ["echo", *["x" * 100_000] * 20]})
    assert response.status_code in (200, 400), response.text


def test_exec_as_class_dev(fresh: Callable[..., Lease]) -> None:
    lease = fresh(**{"class": "dev", "project": f"p-{secrets.token_hex(4)}"})
    assert lease.sh("pwd; echo $HOME") == "/work\n/work\n"
