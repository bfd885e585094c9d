"""``manage.py serve``: the whole product in one process."""

from __future__ import annotations

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from sandboxes.lifecycle import current
from sandboxes.models import ApiKey, Deployment, Org

EXAMPLE = """Lease a sandbox and run Python in it:

  KEY={key}
  ID=$(curl -s -X POST {url}/v1/sandboxes -H "Authorization: Bearer $KEY" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/') && \\
  curl -s {url}/v1/sandboxes/$ID/exec -H "Authorization: Bearer $KEY" -d '{{"argv": ["python3", "-c", "print(6 * 7)"]}}'
"""


class Command(BaseCommand):
    help = "Serve the API, the admin and (unless SANDBOXHUB_REAPER is off) the reaper. SIGTERM drains."
    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--setup", action="store_true", help="first migrate the database and, on a new one, make an admin login and a key"
        )

    def handle(self, *, setup: bool, **_: Any) -> None:
        url = f"http://{'localhost' if settings.BIND in ('127.0.0.1', '0.0.0.0', '::') else settings.BIND}:{settings.PORT}"  # noqa: S104
        if setup:
            call_command("migrate", verbosity=0, interactive=False)
            self._bootstrap(url)
        connections.close_all()
        from sandboxhub.asgi import application
        from sandboxhub.server import serve

        def listening(*_: Any) -> None:
            for runtime in current.hub().engine.runtimes.values():
                if runtime.unenforced:
                    self._say(f"Not limited here, under {runtime.name}: {', '.join(runtime.unenforced)} (docs/settings.md says why)")
            self._say(f"Sandboxhub serves on {url}  (admin: {url}/admin/)")

        serve(application, host=settings.BIND, port=settings.PORT, on_listening=listening)

    def _bootstrap(self, url: str) -> None:
        """On a new database only: an admin and a key, told once."""
        if Deployment.objects.exists():
            return
        password = secrets.token_urlsafe(12)
        get_user_model().objects.create_superuser("admin", password=password)
        org, _ = Org.objects.get_or_create(slug="main")
        _key, text = ApiKey.create(org, name="first key")
        Deployment.instance_id()
        self._say(f"Shown once:  admin login  admin / {password}")
        self._say(f"Shown once:  API key of org main  {text}\n")
        self._say(EXAMPLE.format(key=text, url=url))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
