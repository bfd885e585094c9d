"""The history: append-only, so only read."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import Truncator

from sandboxes.admin.base import EMPTY, OrgFilter, ReadOnlyAdmin, lease_in
from sandboxes.models import Event


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("at", "kind", "lease", "org", "actor", "short_reason")
    list_filter = ("at", OrgFilter)  # no date hierarchy: it walks the whole history for each page
    list_select_related = ("org",)
    search_fields = ("sandbox__startswith", "org__slug", "kind", "actor", "reason")
    search_help_text = "Lease, org, kind, actor or reason"
    fields = ("at", "kind", "lease", "org", "actor", "reason")

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Event], search_term: str) -> tuple[QuerySet[Event], bool]:
        if lease := lease_in(search_term):
            return queryset.filter(sandbox=lease), False
        return super().get_search_results(request, queryset, search_term)

    @admin.display(description="lease", ordering="sandbox")
    def lease(self, event: Event) -> str:
        if not event.sandbox:
            return EMPTY
        return format_html('<a href="{}">{}</a>', reverse("admin:sandboxes_sandbox_change", args=[quote(event.sandbox)]), event.sandbox)

    @admin.display(description="reason")
    def short_reason(self, event: Event) -> str:
        return Truncator(event.reason).chars(80)
