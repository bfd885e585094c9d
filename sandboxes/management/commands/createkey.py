"""``manage.py createkey ORG``: make an API key, and the org if it is new."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from sandboxes import policy
from sandboxes.lifecycle.transitions import record
from sandboxes.models import ApiKey, Org

_NAME_MOST = 80


class Command(BaseCommand):
    help = "Make an API key for ORG (made if it is new) and print it, alone, on stdout. It cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("org", help="the org's slug: a-z, 0-9 and -")
        parser.add_argument("--name", default="", help="what the key is for")
        parser.add_argument("--scopes", default=",".join(ApiKey.Scope.values), help="comma-separated: %(default)s")
        parser.add_argument("--days", type=int, help="days until it expires; without it, never")

    def handle(self, *, org: str, name: str, scopes: str, days: int | None, **_: Any) -> None:
        if not org or policy.slug(org) != org:
            raise CommandError(f"{org!r} is not a slug of a-z, 0-9 and -, at most 48 long")
        if len(name) > _NAME_MOST:
            raise CommandError(f"--name has at most {_NAME_MOST} characters")
        wanted = {scope.strip() for scope in scopes.split(",")}
        if unknown := wanted - set(ApiKey.Scope.values):
            raise CommandError(f"--scopes: {', '.join(map(repr, sorted(unknown)))} is none of {', '.join(ApiKey.Scope.values)}")
        if days is not None and not 1 <= days <= 36_500:
            raise CommandError("--days is between 1 and 36500")
        expires = timezone.now() + timedelta(days=days) if days is not None else None
        with transaction.atomic():
            owner, _created = Org.objects.get_or_create(slug=org)
            granted = [scope for scope in ApiKey.Scope.values if scope in wanted]
            key, text = ApiKey.create(owner, name=name, scopes=granted, expires_at=expires)
            record("key created", org_id=owner.pk, actor="createkey", reason=str(key))
        self.stdout.write(text)
