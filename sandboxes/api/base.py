"""What all viewsets share: how a body and a query are read. The contract is stricter, and laxer, than DRF's own parsing."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.viewsets import ViewSet

from sandboxes import errors
from sandboxes.models import Org


class ApiViewSet(ViewSet):
    """A viewset whose ``scopes`` name the key's scope that each action needs."""

    scopes: dict[str, str] = {}

    def org(self) -> Org:
        """The caller's: what the key belongs to, never what a request says."""
        org: Org = self.request.auth.org  # type: ignore[union-attr]
        return org

    def actor(self) -> str:
        return f"key {self.request.auth}"

    def payload(self, serializer: type[Serializer[Any]]) -> dict[str, Any]:
        """The checked members of the body, those that are null left out. An empty body means all defaults."""
        checked = serializer(data=json_object(self.request.body))
        checked.is_valid(raise_exception=True)
        return {name: value for name, value in checked.validated_data.items() if value is not None}

    def query(self, name: str) -> str:
        """One query parameter, trimmed; absent is empty."""
        value = self.request.query_params.get(name, "").strip()
        if "\0" in value:
            raise errors.InvalidRequest(f"{name}: may not contain NUL")
        return str(value)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        if isinstance(response, Response):
            response = _rendered(response)
        response["Cache-Control"] = "no-store"
        response["X-Content-Type-Options"] = "nosniff"
        return response


def _rendered(response: Response) -> HttpResponse:
    """As a plain response, rendered: for one that is still to be rendered Django goes to the request's thread a second time."""
    response.render()
    plain = HttpResponse(response.content, status=response.status_code)
    plain.headers = response.headers
    return plain


def json_object(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises ``InvalidRequest`` for anything else."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequest(f"invalid body: {error}") from error
    if not isinstance(value, dict):
        raise errors.InvalidRequest("invalid body: not a JSON object")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def query_path(query: bytes) -> bytes | None:
    """``path`` of a raw query string: names are bytes, so it is percent-decoded and not taken for UTF-8."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1", max_num_fields=100)
    except ValueError as error:
        raise errors.InvalidRequest("the query has too many parameters") from error
    for name, value in pairs:
        if name == "path":
            return value.encode("latin-1")
    return None
