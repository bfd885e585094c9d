"""Names the process that works on a lease, so that another can tell whether it still lives; and what this one may work on."""

from __future__ import annotations

import os

from django.conf import settings

_HOST_MOST = 40  #: characters of a host's name that are kept: the last, in which the replicas of one deployment differ


def place() -> tuple[str, str]:
    """The engine of this process, and the host whose sandboxes it may observe and end; a cluster's belong to no host."""
    engine = settings.SANDBOXHUB_ENGINE
    return engine, "" if engine == "kubernetes" else settings.SANDBOXHUB_HOST


def _start_time(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat: it tells a process from a later one with the same number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def this_process() -> str:
    return f"{_host()}/{os.getpid()}:{_start_time(os.getpid())}"


def may_live(token: str) -> bool | None:
    """Whether the process lives; None when it belongs to another host, of which nothing can be seen from here."""
    host, _, process = token.rpartition("/")
    if host != _host():
        return None
    pid, _, start = process.partition(":")
    return pid.isdigit() and _start_time(int(pid)) == start


def _host() -> str:
    return settings.SANDBOXHUB_HOST[-_HOST_MOST:]
