"""How large a sandbox's file systems in memory are: the same on every engine."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True)
class TmpfsSizes:
    """Bytes for what is in memory. Where memory is limited they count against it, and a full one must never be what breaks it."""

    tmp: int
    shm: int
    run: int


def tmpfs_sizes(memory: int) -> TmpfsSizes:
    """At most half of ``memory`` in all."""
    return TmpfsSizes(tmp=max(memory // 4, _MIB), shm=max(memory // 8, _MIB), run=max(min(memory // 16, 64 * _MIB), _MIB))
