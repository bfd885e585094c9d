"""Rows with their baselines and targets, as a table and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.samples import Samples


@dataclass(frozen=True)
class Row:
    """One measurement. ``target`` bounds the ratio to ``bare``, or without one the p50 itself; nothing is asked where it is None."""

    runtime: str
    name: str
    samples: Samples
    bare: Samples | None = None
    target: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.samples.p50 / self.bare.p50 if self.bare else None

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        value = self.samples.p50 if self.ratio is None else self.ratio
        return value <= self.target if self.samples.less_is_better else value >= self.target

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        bound = f"{'<=' if self.samples.less_is_better else '>='} {self.target:g}{'' if self.bare else ' ' + self.samples.unit}"
        return f"{bound}  {'met' if self.met else 'MISSED'}"

    def as_json(self) -> dict[str, Any]:
        return {
            "runtime": self.runtime,
            "name": self.name,
            **self.samples.as_json(),
            "bare": self.bare.as_json() if self.bare else None,
            "ratio": self.ratio,
            "target": self.target,
            "met": self.met,
        }


def machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "root": os.geteuid() == 0,
    }


def table(runtime: str, rows: Sequence[Row]) -> str:
    """The rows of one runtime. ``p95`` is the bad end: slow times, low rates."""
    lines = [(runtime, "n", "p50", "p95", "", "bare p50", "p95", "ratio", "target")]
    for row in rows:
        if row.runtime == runtime:
            bare = (_number(row.bare.p50), _number(row.bare.p95)) if row.bare else ("", "")
            ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
            samples = row.samples
            count = str(len(samples.values))
            lines.append((row.name, count, _number(samples.p50), _number(samples.p95), samples.unit, *bare, ratio, row.verdict))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    aligned = [[_ALIGN[n](cell, widths[n]) for n, cell in enumerate(line)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


_ALIGN = (str.ljust, str.rjust, str.rjust, str.rjust, str.ljust, str.rjust, str.rjust, str.rjust, str.ljust)


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
