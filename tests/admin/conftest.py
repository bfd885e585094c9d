"""Staff, and rows in every state that need no engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from sandboxes.models import Org, Project, Sandbox, State, Volume

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture
def root(db: None) -> Client:
    """Signed in as a superuser called ``root``."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def staff(db: None) -> Callable[..., Client]:
    """Signed in as ``sam``, who has the permissions that are given, by codename."""

    def signed_in(*codenames: str) -> Client:
        user = User.objects.create_user("sam", is_staff=True)
        found = Permission.objects.filter(codename__in=codenames)
        assert len(found) == len(codenames)
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return signed_in


@pytest.fixture
def org(db: None) -> Org:
    return Org.objects.create(slug="acme")


@pytest.fixture
def lease(org: Org) -> Callable[..., Sandbox]:
    """Make a lease's row. It lives on another host, unless told otherwise, so that nothing of it is looked for on this one."""

    def make(state: str = State.RUNNING, *, project: str = "", **fields: Any) -> Sandbox:
        owner = fields.pop("org", org)
        row = volume = None
        if project:
            row, _ = Project.objects.get_or_create(org=owner, slug=project)
            volume, _ = Volume.objects.get_or_create(
                project=row, defaults={"org": owner, "name": f"m-{owner}-{project}", "engine": "oci", "host": "elsewhere", "size": 1 << 30}
            )
        values = {
            "klass": "dev" if project else "exec",
            "attached": bool(project) and state != State.ENDED,
            "project_slug": project,
            "actor": "key sbx_0123456789ab",
            "image": "host",
            "requested_runtime": "gvisor",
            "runtime": "gvisor",
            "engine": settings.SANDBOXHUB_ENGINE,
            "host": "elsewhere",
            "expires_at": timezone.now() + timedelta(hours=1),
        }
        return Sandbox.objects.create(org=owner, project=row, volume=volume, state=state, **{**values, **fields})

    return make
