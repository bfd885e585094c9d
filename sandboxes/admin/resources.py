"""Projects and volumes. Leases make them, and the API deletes them; here they are read."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat

from sandboxes.admin.base import EMPTY, OrgFilter, ReadOnlyAdmin, link_to, list_link
from sandboxes.models import Project, Sandbox, Volume


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin):
    list_display = ("slug", "org", "held_by", "volume_link", "created_at")
    list_filter = (OrgFilter, "created_at")
    list_select_related = ("org", "volume")
    search_fields = ("slug", "org__slug")
    search_help_text = "Project or org"
    fields = ("org", "slug", "created_at", "held_by", "volume_link", "history")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        holders = Prefetch("sandboxes", Sandbox.objects.filter(attached=True))
        return super().get_queryset(request).prefetch_related(holders)

    @admin.display(description="held by")
    def held_by(self, project: Project) -> str:
        return link_to(next(iter(project.sandboxes.all()), None))

    @admin.display(description="volume")
    def volume_link(self, project: Project) -> str:
        return link_to(getattr(project, "volume", None))

    @admin.display(description="leases")
    def history(self, project: Project) -> str:
        return list_link("sandbox", "All leases of this project", org=project.org.slug, q=project.slug)


@admin.register(Volume)
class VolumeAdmin(ReadOnlyAdmin):
    list_display = ("name", "org", "project_link", "engine", "host", "size_text", "created_at", "last_leased_at", "deleting")
    list_filter = ("deleting", OrgFilter, "last_leased_at")
    list_select_related = ("org", "project")
    search_fields = ("name", "org__slug", "project__slug", "host")
    search_help_text = "Volume, org, project or host"
    fields = ("name", "org", "project", "engine", "host", "size_text", "created_at", "last_leased_at", "deleting")

    @admin.display(description="project", ordering="project__slug")
    def project_link(self, volume: Volume) -> str:
        return link_to(volume.project, volume.project.slug)

    @admin.display(description="size", ordering="size")
    def size_text(self, volume: Volume) -> str:
        return filesizeformat(volume.size) if volume.size else EMPTY
