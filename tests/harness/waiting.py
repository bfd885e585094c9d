"""Wait for what the server does by itself, and do many things at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 120.0  #: seconds until what a correct server does at once must have happened, on a machine under load


def until(true: Callable[[], T], *, seconds: float = PATIENCE) -> T:
    """Ask again and again until ``true()`` is true; its answer. Fails after ``seconds``, which a correct server never needs."""
    deadline = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s; the last answer: {answer!r}"
        threading.Event().wait(0.05)
    return answer


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """``work(0)`` to ``work(count - 1)``, all begun at the same moment, each in a thread of its own; their results in this order."""
    gate = threading.Barrier(count)

    def begin(number: int) -> T:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))
