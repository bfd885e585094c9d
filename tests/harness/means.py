"""What a test needs of the machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test for want of ``what``; in CI, where nothing may be skipped, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI nothing is skipped, but {what}", pytrace=False)
    pytest.skip(what)
