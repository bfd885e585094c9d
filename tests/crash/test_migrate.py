"""Replicas that come up at once on one new database."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.server import Server, fresh_database
from harness.waiting import at_once


def test_replicas_migrate_in_turn(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with fresh_database(home) as database:
        if database.startswith("sqlite:"):
            pytest.skip("of PostgreSQL: SQLite has one server")
        server = Server(home, database, {})
        outputs = at_once(3, lambda _: server.manage("migrate", "--no-color"))
        assert sorted("No migrations to apply." in output for output in outputs) == [False, True, True]
