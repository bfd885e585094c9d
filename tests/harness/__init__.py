"""Drives a real server from outside, for the black-box tests."""

import pytest

pytest.register_assert_rewrite("harness.client", "harness.server", "harness.waiting")
