"""The addresses of terminals, under both prefixes. The socket and the uploads are taken ahead of Django by ``sandboxhub/asgi.py``."""

from __future__ import annotations

import re

from django.urls import URLPattern, path

from terminals import views

TERMINAL_SOCKET = re.compile(r"/v1/sandbox(?:es)?/[^/]+/terminal/ws")


def _terminals(prefix: str) -> list[URLPattern]:
    return [
        path(f"{prefix}/<str:pk>/terminal/ticket", views.TicketViewSet.as_view({"post": "create"})),
        path(f"{prefix}/<str:pk>/terminal", views.page),
        path(f"{prefix}/<str:pk>/terminal/ws", views.not_upgraded),
    ]


urlpatterns = [*_terminals("sandbox"), *_terminals("sandboxes")]
