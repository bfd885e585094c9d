"""The terminal's page in a real browser."""

import pytest

pytest.register_assert_rewrite("browser.terminal")
