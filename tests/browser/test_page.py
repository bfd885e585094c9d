"""The page works in a real browser. "Check" and a number name the acceptance checks of terminals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.client import Api, Lease

from .terminal import Terminal

Open = Callable[..., Terminal]


def test_types_and_sees_output(open_terminal: Open, lease: Lease) -> None:
    terminal = open_terminal(lease)
    terminal.run("echo $((6 * 7))")
    terminal.until("^42$")
    terminal.shot("open-dark")
