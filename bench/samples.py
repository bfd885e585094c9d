"""What was measured, as numbers that can be compared."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any


class Samples:
    """Measurements of one thing. Less is better in ``ms``, ``s`` and ``MB``, more in ``MB/s`` and ``/s``."""

    def __init__(self, unit: str = "ms") -> None:
        self.unit = unit
        self.values: list[float] = []

    @property
    def less_is_better(self) -> bool:
        return not self.unit.endswith("/s")

    @property
    def p50(self) -> float:
        return self._percentile(50)

    @property
    def p95(self) -> float:
        """The bad end: slow times, or low rates."""
        return self._percentile(95 if self.less_is_better else 5)

    def add(self, value: float) -> None:
        self.values.append(value)

    def as_json(self) -> dict[str, Any]:
        return {"unit": self.unit, "p50": self.p50, "p95": self.p95, "values": self.values}

    def _percentile(self, percent: int) -> float:
        """By nearest rank."""
        return sorted(self.values)[max(0, math.ceil(len(self.values) * percent / 100) - 1)]


Work = Callable[[], Awaitable[object]]


async def timed(work: Work) -> float:
    """Seconds that ``work`` took."""
    began = perf_counter()
    await work()
    return perf_counter() - began


async def interleaved(rounds: int, ways: dict[str, Work], *, size: int | None = None) -> dict[str, Samples]:
    """Time every way in every round, after one round that does not count; each round begins with another one.

    In milliseconds, or, when each moves ``size`` bytes, in MB/s.
    """
    found = {name: Samples("ms" if size is None else "MB/s") for name in ways}
    names = list(ways)
    for number in range(-1, rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds = await timed(ways[name])
            if number >= 0:
                found[name].add(seconds * 1000 if size is None else size / seconds / 1e6)
    return found
