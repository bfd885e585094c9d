"""Output that never ends, input that nobody takes, and files that are none: no request hangs, and nothing grows without bound."""

from __future__ import annotations

import time
from typing import Any

import pytest
from harness.client import Lease
from harness.server import Server
from harness.waiting import at_once

MIB = 1 << 20
STRANGE = "mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'"
LIMIT = 30.0  #: seconds within which what has a deadline of one second is over, also on a machine under load


def timed_out(box: Lease, **members: Any) -> dict[str, Any]:
    began = time.monotonic()
    problem = box.api.refuses(504, "timeout", "POST", f"{box.path}/exec", json={"timeoutSec": 1, **members})
    assert time.monotonic() - began < LIMIT
    return problem


@pytest.mark.parametrize(
    "command",
    [
        "yes",
        "cat /dev/zero",
        "cat /dev/urandom >&2",
        "yes | tee /dev/stderr",
        "while :; do echo x; done",
        "exec 1>&- 2>&-; while :; do :; done",
        "tail -f /dev/null",
        "cat fifo",
        "echo x >fifo",
        "trap '' TERM INT HUP QUIT; while :; do sleep 1; done",
        "sleep 1000 & sleep 1000 & wait",
        "kill -STOP $$",
        "(while :; do setsid sh -c 'yes >/dev/null & sleep 50' & sleep 0.2; done)",
    ],
)
def test_commands_without_an_end(box: Lease, command: str) -> None:
    box.sh("mkfifo fifo")
    problem = timed_out(box, command=command)
    assert len(problem["stdout"]) <= MIB + 100
    assert len(problem["stderr"]) <= MIB + 100
    assert box.sh("echo alive; ps -e -o stat=,comm= | grep -cE '(yes|sleep|tail|cat)$' || true") == "alive\n0\n"


def test_stdin_that_nobody_takes(box: Lease) -> None:
    """4 MiB at most, the body's limit; the command never reads."""
    timed_out(box, command="sleep 1000", stdin="x" * (3 * MIB))
    assert box.exec(command="exec 0<&-; sleep 0.1; echo done", stdin="x" * (3 * MIB))["stdout"] == "done\n"


@pytest.mark.parametrize(
    "program", ["/dev/zero", "/dev/null", "/proc/self/mem", "fifo", ".", "/etc/passwd", "loop", "socket", "empty", "huge"]
)
def test_programs_that_are_none(box: Lease, program: str) -> None:
    """Found out at the start, at once."""
    box.sh(f"{STRANGE}; ln -s loop loop; : >empty; truncate -s 1G huge; chmod 755 fifo empty huge")
    began = time.monotonic()
    name = program if program.startswith(("/", ".")) else f"./{program}"
    response = box.api.post(f"{box.path}/exec", {"argv": [name], "timeoutSec": 20})
    assert response.status_code == 200, response.text
    result = response.json()
    assert result["exitCode"] in (126, 127), result
    assert time.monotonic() - began < LIMIT


def test_directories_of_a_command_that_are_none(box: Lease) -> None:
    box.sh("mkfifo fifo; ln -s loop loop; ln -s /dev/zero zero")
    for directory in ("fifo", "loop", "zero", "/dev/stdin", "/proc/1/cwd", "x" * 5000, "a/../../../../root"):
        result = box.exec("true", dir=directory)
        assert result["exitCode"] != 0 and result["startError"], (directory, result)


@pytest.mark.parametrize("name", ["fifo", "zero", "null", "stdin", "tty", "pts", "mem", "socket", "kmsg", "fd"])
def test_files_that_are_none(box: Lease, name: str) -> None:
    """Neither read nor written, whether somebody holds the other end or not."""
    box.sh(f"{STRANGE}; for n in zero null stdin tty kmsg fd; do ln -s /dev/$n $n; done; ln -s /dev/ptmx pts; ln -s /proc/self/mem mem")
    box.sh("(sleep 40 <>fifo) >/dev/null 2>&1 &" if name == "fifo" else ":")
    began = time.monotonic()
    for _ in range(2):
        assert box.api.get(box.file(name)).status_code in (400, 404)
        assert box.api.post(box.file(name), data=b"x").status_code == 400
        assert box.api.post("/sandbox/read", {"id": box.id, "path": name}).status_code in (400, 404)
    assert time.monotonic() - began < LIMIT
    box.api.post("/sandbox/stop", {"id": box.id})


def test_an_endless_file_is_sent_as_long_as_it_was(box: Lease) -> None:
    """/proc and sparse files lie about their size."""
    box.sh("truncate -s 200G sparse 2>/dev/null || truncate -s 1G sparse")
    connection = box.api.connection()
    connection.request("GET", f"/v1{box.file('sparse')}", headers={"Authorization": f"Bearer {box.api.key}"})
    response = connection.getresponse()
    assert response.status == 200
    assert set(response.read(4 * MIB)) == {0}
    connection.close()
    box.api.refuses(413, "too_large", "POST", "/sandbox/read", json={"id": box.id, "path": "sparse"})


def test_floods_at_once_leave_the_server_small(box: Lease, server: Server) -> None:
    """Twenty commands print without end and nobody reads them: the server keeps what it promised to keep, and others are served."""
    before = server.memory()

    def work(number: int) -> int:
        if number:
            return box.api.post(f"{box.path}/exec", {"command": "yes $(head -c 1000 /dev/zero | tr '\\0' x)", "timeoutSec": 2}).status_code
        return box.api.get("/org").status_code

    assert set(at_once(20, work)) == {200, 504}
    assert server.memory() - before < 250 * MIB
    assert box.sh("echo alive") == "alive\n"
