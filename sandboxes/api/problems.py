"""Every error of the API as RFC 9457 ``application/problem+json``."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import RawPostDataException, UnreadablePostError
from rest_framework import exceptions
from rest_framework.views import set_rollback

from sandboxes import errors
from sandboxes.api.authentication import REALM

log = structlog.get_logger(__name__)
CONTENT_TYPE = "application/problem+json"


def document(status: int, detail: str, code: str, **members: Any) -> dict[str, Any]:
    return {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, "code": code, **members}


def of(error: errors.SandboxError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, problem document and headers that tell ``error``."""
    headers = {"WWW-Authenticate": REALM} if error.status == 401 else {}
    return error.status, document(error.status, error.detail, error.code, **error.members), headers


def respond(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> HttpResponse:
    response = HttpResponse(json.dumps(body), status=status, content_type=CONTENT_TYPE, headers=headers or {})
    response._has_been_logged = True  # type: ignore[attr-defined]  # what is worth a line was logged here, with its cause
    return response


def handle(error: Exception, context: dict[str, Any]) -> HttpResponse:
    """DRF's exception handler. What nobody foresaw is logged whole and told as a bare 500."""
    set_rollback()
    match error:
        case errors.SandboxError():
            if error.status >= 500:
                log.warning("a request failed", code=error.code, detail=error.detail)
            return respond(*of(error))
        case exceptions.MethodNotAllowed():
            allowed = ", ".join(context["view"].allowed_methods)
            return respond(405, document(405, str(error.detail), "method_not_allowed"), {"Allow": allowed})
        case exceptions.ValidationError():
            return respond(400, document(400, _sentence(error.detail), "invalid_body", errors=error.detail))
        case exceptions.APIException():
            return respond(error.status_code, document(error.status_code, str(error.detail), str(error.default_code)))
        case Http404():
            return respond(404, document(404, "there is nothing here", "not_found"))
        case PermissionDenied():
            return respond(403, document(403, "not allowed", "forbidden"))
        case RequestDataTooBig():
            return respond(413, document(413, "the body is too large", "too_large"))
        case UnreadablePostError() | RawPostDataException() | SuspiciousOperation():
            return respond(400, document(400, "the request could not be read", "invalid_body"))
    log.error("a request hit a defect", exc_info=error)
    return respond(500, document(500, "an internal error; the log has its cause", "internal"))


def _sentence(detail: Any, name: str = "") -> str:
    """The first of a serializer's complaints, with the member it is about."""
    if isinstance(detail, dict):
        for key, value in detail.items():
            return _sentence(value, key if key != "non_field_errors" else name)
    if isinstance(detail, list) and detail:
        return _sentence(detail[0], name)
    return f"{name}: {detail}" if name else str(detail)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """handler404: a problem under /v1/, a plain page elsewhere."""
    if request.path_info.startswith("/v1/"):
        return respond(404, document(404, "there is nothing here", "not_found"))
    return HttpResponse("Not found\n", status=404, content_type="text/plain")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """handler400: a host that is not allowed, and the like."""
    return respond(400, document(400, "the request is not acceptable", "invalid_body"))


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500."""
    return respond(500, document(500, "an internal error; the log has its cause", "internal"))
