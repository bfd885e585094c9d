"""The OpenAPI document: what every operation has in common, said once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request

PROJECT = OpenApiParameter("project", str, description="Only those of this project.")
STATUS = OpenApiParameter("status", str, description="Only those of this status: pending, running, parked or error.")
LIMIT = OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 200}, description="Rows at most.")
CURSOR = OpenApiParameter("cursor", str, description="The page behind this cursor, which the last page gave as next.")
PURGE = OpenApiParameter("purge", str, description="1 deletes the project's volume, too; nothing else does.")
FILE_PATH = OpenApiParameter("path", str, description="A path in the workdir, percent-encoded bytes; empty is the workdir itself.")
IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]{1,255}$"},
    OpenApiParameter.HEADER,
    description="The same key leases once, however often it is sent.",
)
_PROBLEM = {
    "type": "object",
    "description": "RFC 9457. `code` is stable; some problems carry more members.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "code"],
}
_METHODS = ("get", "post", "put", "patch", "delete")
_ID = {
    "in": "path",
    "name": "id",
    "schema": {"type": "string", "pattern": "^m_[0-9a-f]{24}$"},
    "required": True,
    "description": "A sandbox that the org holds.",
}
_ARGV_OR_COMMAND = [
    {"required": ["argv"], "properties": {"argv": {"type": "array", "minItems": 1}}},
    {"required": ["command"], "properties": {"command": {"type": "string", "pattern": "\\S"}}},
]


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "sandboxes.api.authentication.KeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key of the org."}


def operation(
    name: str, summary: str, *, answers: dict[int, Any], body: Any = None, parameters: list[OpenApiParameter] | None = None
) -> Callable[..., Any]:
    """Describe a view's method. ``answers``: a serializer, ``bytes`` (text/plain) or None (nothing) by status."""
    described: dict[Any, Any] = {}
    for status, answer in answers.items():
        described[(status, "text/plain") if answer is bytes else status] = OpenApiResponse(
            {"type": "string", "format": "binary"} if answer is bytes else answer, description=summary
        )
    return extend_schema(
        operation_id=name,
        summary=summary,
        description="",  # not the docstring of the view
        request=body,
        responses=described,
        parameters=parameters or [],
        tags=["sandboxes"],
    )


def only_singular(endpoints: list[tuple[str, str, str, Any]], **_: Any) -> list[tuple[str, str, str, Any]]:
    """Both prefixes serve the same; the document shows one."""
    return [entry for entry in endpoints if not entry[0].startswith("/v1/sandboxes")]


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Adds what the serializers cannot say.

    Every operation may answer a problem, a command is one of two members, and a file is written by an application that Django's router does
    not know.
    """
    schemas = result["components"].setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    for name in ("ExecIn", "RunIn"):
        schemas[name]["anyOf"] = _ARGV_OR_COMMAND
    for path in ("/v1/sandbox/{id}/exec", "/v1/sandbox/run"):
        result["paths"][path]["post"]["requestBody"]["required"] = True
    result["paths"]["/v1/sandbox/{id}/fs"]["post"] = _FILE_WRITE
    problem = {"description": "A problem.", "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path in result["paths"].values():
        for method in _METHODS:
            if method in path:
                path[method]["responses"]["default"] = problem
                given = path[method].get("parameters", [])
                path[method]["parameters"] = [_ID if parameter["name"] == "id" else parameter for parameter in given]
    cleaned: dict[str, Any] = _without_marks(result)
    return cleaned


def _without_marks(part: Any) -> Any:
    """``part`` without the members that drf-spectacular leaves for its own use."""
    if isinstance(part, dict):
        return {name: _without_marks(value) for name, value in part.items() if name != "x-spec-enum-id"}
    return [_without_marks(value) for value in part] if isinstance(part, list) else part


_FILE_WRITE: dict[str, Any] = {
    "operationId": "post_sandbox_by_id_fs",
    "summary": "Write a file: the body is its content, complete or nothing",
    "tags": ["sandboxes"],
    "security": [{"key": []}],
    "parameters": [
        _ID,
        {
            "in": "query",
            "name": "path",
            "schema": {"type": "string", "minLength": 1},
            "required": True,
            "description": "A path in the workdir, percent-encoded bytes.",
        },
    ],
    "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    "responses": {
        "200": {"description": "Written.", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/WroteOut"}}}}
    },
}


@cache
def _document() -> bytes:
    """Made once: it is the same for everybody, and to make it costs more than whoever asks without a key may spend."""
    rendered: bytes = OpenApiJsonRenderer().render(SchemaGenerator().get_schema(request=None, public=True), renderer_context={})  # type: ignore[no-untyped-call]
    return rendered


class OpenApiView(SpectacularJSONAPIView):
    def _get_schema_response(self, request: Request) -> HttpResponse:
        return HttpResponse(_document(), content_type=OpenApiJsonRenderer.media_type)
