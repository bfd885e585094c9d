"""The scripts that bring the guest into a pod, run here by the shells that images have."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.means import missing

from sandboxes.engine.kubernetes import boot

#: A stand-in for the guest: it says what it was asked to do.
PROGRAM = b'#!/bin/sh\necho "$@"\n'
SHELLS = [["sh"], ["bash", "--posix"], ["busybox", "sh"]]


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[list[str]], list[str]]:
    """Turns a command for a pod into one for this machine: another shell, and the pod's paths in ``tmp_path``."""
    if shutil.which(request.param[0]) is None:
        missing(f"there is no {request.param[0]}")
    for directory in (boot.IMAGE_GUEST, boot.UPLOAD_DIRECTORY):
        (tmp_path / directory[1:].split("/")[0]).mkdir()

    def here(command: list[str]) -> list[str]:
        _, flag, script, *rest = command
        for path in (boot.IMAGE_GUEST, boot.UPLOAD_DIRECTORY):
            script = script.replace(f"={path}", f"={tmp_path}{path}")
        return [*request.param, flag, script, *rest]

    return here


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_an_upload_is_asked_for_and_run(run, tmp_path: Path):
    with start(run(boot.connect(len(PROGRAM)))) as process:
        assert process.stdout and process.stdin
        assert process.stdout.read(1) == boot.ASKS_FOR_GUEST
        process.stdin.write(PROGRAM + b"the rest is the guest's")
        process.stdin.flush()
        assert process.stdout.readline() == b"connect\n"
    assert [path.name for path in (tmp_path / ".sandboxhub").iterdir()] == ["guest"]


def test_what_is_there_is_not_asked_for(run, tmp_path: Path):
    guest = tmp_path / ".sandboxhub" / "guest"
    guest.write_bytes(PROGRAM)
    guest.chmod(0o755)
    assert subprocess.check_output(run(boot.connect(1)), stdin=subprocess.DEVNULL) == boot.FOUND_GUEST + b"connect\n"


def test_the_image_s_own_comes_first(run, tmp_path: Path):
    guest = tmp_path / ".guest" / "guest"
    guest.write_bytes(PROGRAM)
    guest.chmod(0o755)
    assert subprocess.check_output(run(boot.connect(1)), stdin=subprocess.DEVNULL) == boot.FOUND_GUEST + b"connect\n"
    assert subprocess.check_output(run(boot.first_process("/work", None))) == b"init --workdir /work\n"


def test_half_an_upload_is_no_guest(run, tmp_path: Path):
    process = start(run(boot.connect(len(PROGRAM))))
    out, _ = process.communicate(PROGRAM[:10])
    assert (out, process.returncode) == (boot.ASKS_FOR_GUEST, 1)
    assert not (tmp_path / ".sandboxhub" / "guest").exists()


def test_the_first_process_turns_into_the_guest(run, tmp_path: Path):
    with start(run(boot.first_process("/work dir", 4000))) as process:
        subprocess.run(run(boot.connect(len(PROGRAM))), input=PROGRAM, stdout=subprocess.DEVNULL, check=True)
        assert process.stdout
        assert process.stdout.read() == b"init --workdir /work dir\n"


def test_the_bound_of_processes_is_inherited(run, tmp_path: Path):
    guest = tmp_path / ".guest" / "guest"
    guest.write_bytes(b"#!/bin/sh\nexec cat /proc/self/limits\n")
    guest.chmod(0o755)
    limits = subprocess.check_output(run(boot.first_process("/work", 4321))).decode()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max processes")]
    assert line.split()[2:4] == ["4321", "4321"]


def test_it_ends_when_asked_before_there_is_a_guest(run):
    with start(run(boot.first_process("/work", None))) as process:
        # The trap is set once a child of the loop is there.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
