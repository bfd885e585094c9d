"""Processes of this host: which is meant by a number, whether it lives, and how to end it.

Blocking calls, a few milliseconds at most unless said otherwise.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Identity:
    """One process, for ever: numbers are used again, but not with the same start in the same boot."""

    pid: int
    started: int  #: clock ticks since boot
    boot: str


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """Who ``pid`` is now; None when there is none, or only its zombie."""
    stat = _stat(pid)
    if stat is None or stat[0] in "ZX":
        return None
    return Identity(pid, stat[1], boot_id())


def alive(process: Identity) -> bool:
    return identify(process.pid) == process


def open_pidfd(process: Identity) -> int | None:
    """A file descriptor that becomes readable when ``process`` ends; None when it has ended. The caller closes it."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return None
    if alive(process):
        return fd
    os.close(fd)
    return None


def kill_all(find: Callable[[], Iterable[int]], *, timeout: float) -> list[int]:
    """SIGKILL what ``find`` finds until it finds nothing. Blocks, at most ``timeout`` seconds; returns the numbers that are left."""
    deadline = time.monotonic() + timeout
    while True:
        left = [pid for pid in find() if pid not in (0, os.getpid())]
        if not left or time.monotonic() > deadline:
            return left
        with _pidfds(left) as fds:
            for fd in fds:
                _send_kill(fd)
            _wait_ended(fds, max(0.0, min(deadline - time.monotonic(), 1.0)))


def find_mine(*, markers: Iterable[str], log: Path) -> list[int]:
    """Living processes whose arguments hold all of ``markers`` (the state directory and a name), or whose stderr is ``log``.

    That finds what no cgroup holds: a runtime that a crash of the control plane left in the middle of its work, and
    everything of a rootless sandbox.
    """
    wanted = [os.fsencode(marker) for marker in markers]
    found = []
    for pid in _all():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        matches = bool(arguments) and all(marker in arguments for marker in wanted)
        if (matches or _stderr(pid) == str(log)) and identify(pid) is not None:
            found.append(pid)
    return found


def _stderr(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/2")
    except OSError:
        return None


def _all() -> Iterator[int]:
    me = os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != me:
            yield int(entry)


def _stat(pid: int) -> tuple[str, int] | None:
    """The state and start of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


@contextmanager
def _pidfds(pids: Iterable[int]) -> Iterator[list[int]]:
    fds = []
    for pid in pids:
        try:
            fds.append(os.pidfd_open(pid))
        except OSError:
            continue  # gone, or a thread's number
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def _send_kill(fd: int) -> None:
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _wait_ended(fds: list[int], timeout: float) -> None:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + timeout
    waiting = len(fds)
    while waiting:
        ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ended:
            return
        for fd, _ in ended:
            poll.unregister(fd)
        waiting -= len(ended)
