"""``manage.py reap``: the reaper as a process of its own."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sandboxes import errors, reaper
from sandboxes.lifecycle import current


class Command(BaseCommand):
    help = "End leases whose time is over and reconcile what runs with what is leased, until stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="one turn, then exit")

    def handle(self, *, once: bool, **_: Any) -> None:
        try:
            if once:
                count = current.call(reaper.run_once)
                self.stdout.write(f"{count} leases ended")
            else:
                current.call(reaper.run)
        except errors.EngineError as error:
            raise CommandError(error.detail) from error
        except KeyboardInterrupt:
            pass
        finally:
            current.close()
