"""The API's addresses. ``POST .../fs`` is not here: ``sandboxhub/asgi.py`` hands it to ``files.FileWrites``."""

from __future__ import annotations

from django.urls import URLPattern, path

from sandboxes.api.resources import OrgViewSet, ProjectViewSet, VolumeViewSet
from sandboxes.api.schema import OpenApiView
from sandboxes.api.views import SandboxViewSet, VerbViewSet

VERBS = ("lease", "run", "read", "write", "stop", "end")


def _leases(prefix: str) -> list[URLPattern]:
    verbs = [path(f"{prefix}/{verb}", VerbViewSet.as_view({"post": verb})) for verb in VERBS]
    return [
        path(prefix, SandboxViewSet.as_view({"get": "list", "post": "create"})),
        *verbs,
        path(f"{prefix}/<str:pk>", SandboxViewSet.as_view({"get": "retrieve", "delete": "destroy"})),
        path(f"{prefix}/<str:pk>/exec", SandboxViewSet.as_view({"post": "exec"})),
        path(f"{prefix}/<str:pk>/fs", SandboxViewSet.as_view({"get": "fs"})),
    ]


urlpatterns = [
    *_leases("sandbox"),
    *_leases("sandboxes"),
    path("org", OrgViewSet.as_view({"get": "retrieve"})),
    path("projects", ProjectViewSet.as_view({"get": "list", "post": "create"})),
    path("projects/<str:slug>", ProjectViewSet.as_view({"get": "retrieve", "delete": "destroy"})),
    path("volumes", VolumeViewSet.as_view({"get": "list"})),
    path("volumes/<str:name>", VolumeViewSet.as_view({"get": "retrieve", "delete": "destroy"})),
    path("openapi.json", OpenApiView.as_view()),
]
