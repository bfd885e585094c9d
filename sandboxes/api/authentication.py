"""API keys as bearer tokens, and what each scope may do."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sandboxes import errors
from sandboxes.models import ApiKey

REALM = 'Bearer realm="sandboxhub"'
_KEY = re.compile(r"sbx_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_LAST_USE_STEP = timedelta(minutes=1)  # so that a busy key costs no write per request


def authenticate(header: str) -> ApiKey:
    """The live key in an ``Authorization`` header, its org loaded. Raises ``Unauthorized``, with one text for every kind of bad key."""
    kind, _, text = header.strip().partition(" ")
    match = _KEY.fullmatch(text.strip())
    if kind.lower() != "bearer" or match is None:
        raise errors.Unauthorized("a valid API key is needed: Authorization: Bearer sbx_...")
    key = ApiKey.objects.select_related("org").filter(prefix=match[1]).first()
    now = timezone.now()
    if key is None or not key.matches(text.strip()) or not key.is_live(now):
        raise errors.Unauthorized("a valid API key is needed: Authorization: Bearer sbx_...")
    if key.last_used_at is None or now - key.last_used_at >= _LAST_USE_STEP:
        ApiKey.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=now), pk=key.pk).update(last_used_at=now)
    return key


def require_scope(key: ApiKey, scope: str) -> None:
    if scope not in key.scopes:
        raise errors.Forbidden(f"this key lacks the scope {scope!r}")


class KeyAuthentication(BaseAuthentication):
    """``request.auth`` is the key; there is no user."""

    def authenticate(self, request: Request) -> tuple[None, ApiKey]:
        return None, authenticate(request.META.get("HTTP_AUTHORIZATION", ""))

    def authenticate_header(self, request: Request) -> str:
        return REALM


class HasScope(BasePermission):
    """The view names the scope of each of its actions in ``scopes``."""

    def has_permission(self, request: Request, view: Any) -> bool:
        scope = view.scopes.get(view.action)
        if scope is not None and isinstance(request.auth, ApiKey):  # no action: the method is not allowed, which is told later
            require_scope(request.auth, scope)
        return True
