"""What is mounted, in this process's mount namespace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    target: str
    kind: str
    source: str


def read_mounts() -> list[Mount]:
    return parse(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))


def parse(mountinfo: str) -> list[Mount]:
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        target = before.split(" ")[4]
        kind, source = after.split(" ")[:2]
        found.append(Mount(_unescape(target), kind, _unescape(source)))
    return found


def _unescape(text: str) -> str:
    """The kernel writes blanks and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
