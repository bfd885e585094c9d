"""The cgroups of one deployment: ``/sandboxhub-<instance>/<name>`` in every hierarchy, of version 1, 2 or both. Blocking calls, short."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandboxes.engine.oci.config import ANY_NAME
from sandboxes.engine.oci.mounts import read_mounts


@dataclass(frozen=True)
class Pressure:
    """What the kernel counted against one sandbox's limits."""

    oom_kills: int
    refused_forks: int


class Cgroups:
    """Without hierarchies (rootless) there is never anything to find or do."""

    def __init__(self, instance: str, hierarchies: list[Path]) -> None:
        self._parent = f"sandboxhub-{instance}"
        self._hierarchies = hierarchies

    def path(self, name: str) -> str:
        """``linux.cgroupsPath`` of a sandbox."""
        return f"/{self._parent}/{name}"

    def names(self) -> set[str]:
        found: set[str] = set()
        for hierarchy in self._hierarchies:
            found.update(entry for entry in _list(hierarchy / self._parent) if ANY_NAME.fullmatch(entry))
        return found

    def pids(self, name: str) -> set[int]:
        """Living processes in the sandbox's cgroups. 0 stands for one of another pid namespace."""
        found: set[int] = set()
        for directory in self._directories(name):
            found.update(int(line) for line in _read(directory / "cgroup.procs").split())
        return found

    def kill(self, name: str) -> None:
        """Thaw, so that a signal takes effect, and on version 2 kill all at once."""
        for directory in self._directories(name):
            _write(directory / "freezer.state", "THAWED")
            _write(directory / "cgroup.freeze", "0")
            _write(directory / "cgroup.kill", "1")

    def remove(self, name: str) -> bool:
        """Remove the sandbox's cgroups, which hold no process any more. False when one is left."""
        for directory in self._directories(name):
            try:
                directory.rmdir()
            except OSError:
                continue  # told by what is left
        return not any(True for _ in self._directories(name))

    def pressure(self, name: str) -> Pressure:
        oom_kills = refused_forks = 0
        for directory in self._directories(name):
            for file in ("memory.oom_control", "memory.events"):
                oom_kills = max(oom_kills, _counter(_read(directory / file), "oom_kill"))
            refused_forks = max(refused_forks, _counter(_read(directory / "pids.events"), "max"))
        return Pressure(oom_kills, refused_forks)

    def _directories(self, name: str) -> Iterator[Path]:
        """The sandbox's cgroups, children before parents."""
        for hierarchy in self._hierarchies:
            top = hierarchy / self._parent / name
            for directory, _, _ in os.walk(top, topdown=False):
                yield Path(directory)


def hierarchies() -> list[Path]:
    """Where the cgroup file systems are mounted."""
    return [Path(mount.target) for mount in read_mounts() if mount.kind in ("cgroup", "cgroup2")]


def _list(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _write(file: Path, text: str) -> None:
    """Write to a control that this version of cgroups, or the moment, may not have."""
    try:
        fd = os.open(file, os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(fd, text.encode())
    except OSError:
        pass  # the processes are then killed one by one
    finally:
        os.close(fd)


def _counter(text: str, key: str) -> int:
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == key and words[1].isdigit():
            return int(words[1])
    return 0
