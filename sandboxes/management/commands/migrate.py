"""``manage.py migrate``: Django's own, one process at a time. Replicas that start together all want to migrate their one database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.commands import migrate
from django.db import connections

_LOCK = 0x5A9DB0C5  #: any number that nothing else on the database locks
_TRY_EVERY = 0.5  #: seconds; who waits holds no snapshot meanwhile, which CREATE INDEX CONCURRENTLY would wait for


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        with _alone(options["database"]):
            super().handle(*args, **options)


@contextmanager
def _alone(database: str) -> Iterator[None]:
    """Hold PostgreSQL's advisory lock. SQLite needs none: it has one server, and locks for itself."""
    connection = connections[database]
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
            if cursor.fetchone() == (True,):
                break
            time.sleep(_TRY_EVERY)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
