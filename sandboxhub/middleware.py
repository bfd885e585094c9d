"""Django's middleware for people's pages, kept off the API.

Under ASGI each of these costs a request one or two hops to a thread; the API needs none of them (it has keys, not sessions).
"""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from axes import middleware as axes
from django.contrib.auth import middleware as auth
from django.contrib.messages import middleware as messages
from django.contrib.sessions import middleware as sessions
from django.http import HttpRequest
from django.middleware import clickjacking, common, csrf, security
from servestatic import middleware as static

API = "/v1/"


def off_api(base: type) -> type:
    """``base``, passing requests of the API straight on."""

    class OffApi(base):  # type: ignore[misc]
        def __call__(self, request: HttpRequest) -> Any:
            if request.path_info.startswith(API):
                return self.get_response(request)
            return super().__call__(request)

    if hasattr(base, "process_view"):

        async def process_view(self: Any, request: HttpRequest, *args: Any) -> Any:
            if request.path_info.startswith(API):
                return None
            return await sync_to_async(base.process_view)(self, request, *args)

        OffApi.process_view = process_view
    OffApi.__name__ = OffApi.__qualname__ = base.__name__
    return OffApi


AxesMiddleware = off_api(axes.AxesMiddleware)
AuthenticationMiddleware = off_api(auth.AuthenticationMiddleware)
CommonMiddleware = off_api(common.CommonMiddleware)
CsrfViewMiddleware = off_api(csrf.CsrfViewMiddleware)
MessageMiddleware = off_api(messages.MessageMiddleware)
SecurityMiddleware = off_api(security.SecurityMiddleware)
ServeStaticMiddleware = off_api(static.ServeStaticMiddleware)
SessionMiddleware = off_api(sessions.SessionMiddleware)
XFrameOptionsMiddleware = off_api(clickjacking.XFrameOptionsMiddleware)
