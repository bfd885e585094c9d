"""Leases: their list, their page with their history, and ``reap``."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.text import Truncator

from sandboxes import policy
from sandboxes.admin.base import OrgFilter, ReadOnlyAdmin, actor, confirm, lease_in, link_to, log
from sandboxes.lifecycle import leases
from sandboxes.models import PUBLIC, Event, Sandbox, State

REAP_MOST = 500  #: leases at once
EVENTS_MOST = 200  #: of the newest, on a lease's page
_REASON = "reaped by staff"


class LifeFilter(admin.SimpleListFilter):
    """The states in the three words that matter."""

    title = "life"
    parameter_name = "life"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("live", "Live"), ("ending", "Ending"), ("ended", "Ended")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Sandbox]) -> QuerySet[Sandbox]:
        match self.value():
            case "live":
                return queryset.filter(state__in=PUBLIC)
            case "ending" | "ended" as state:
                return queryset.filter(state=state)
        return queryset


class ClassFilter(admin.SimpleListFilter):
    title = "class"
    parameter_name = "class"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in policy.CLASSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Sandbox]) -> QuerySet[Sandbox]:
        return queryset.filter(klass=value) if (value := self.value()) else queryset


class RuntimeFilter(admin.SimpleListFilter):
    """The runtime that a lease got."""

    title = "runtime"
    parameter_name = "runtime"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in policy.RUNTIMES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Sandbox]) -> QuerySet[Sandbox]:
        return queryset.filter(runtime=value) if (value := self.value()) else queryset


@admin.register(Sandbox)
class SandboxAdmin(ReadOnlyAdmin):
    change_form_template = "admin/sandboxes/sandbox/change_form.html"
    list_display = ("id", "state", "klass", "org", "project_link", "runtime", "host", "created_at", "expires_at", "problem")
    list_filter = ("state", LifeFilter, ClassFilter, RuntimeFilter, OrgFilter, "created_at")
    list_select_related = ("org", "project")
    search_fields = ("id__startswith", "org__slug", "project_slug", "actor", "host")
    search_help_text = "Lease, container, org, project, actor or host"
    actions = ("reap",)
    fieldsets = (
        (None, {"fields": ("id", "state", "error", "org", "project", "project_slug", "volume", "actor", "idempotency_key")}),
        (
            "What runs",
            {"fields": ("klass", "image", "requested_runtime", "runtime", "engine", "host", "container", "generation", "worker")},
        ),
        ("When", {"fields": ("created_at", "started_at", "last_used_at", "connected_at", "expires_at", "failed_at")}),
        ("Its end", {"fields": ("end_reason", "purge", "attached", "end_attempts", "end_error", "retry_at", "ended_at")}),
    )

    @admin.display(description="project", ordering="project_slug")
    def project_link(self, sandbox: Sandbox) -> str:
        return link_to(sandbox.project, sandbox.project_slug) if sandbox.project else sandbox.project_slug

    @admin.display(description="problem")
    def problem(self, sandbox: Sandbox) -> str:
        text = sandbox.end_error if sandbox.state == State.ENDING else sandbox.error
        return Truncator(text).chars(80)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Sandbox], search_term: str) -> tuple[QuerySet[Sandbox], bool]:
        if lease := lease_in(search_term):
            return queryset.filter(pk=lease), False
        return super().get_search_results(request, queryset, search_term)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        pk = unquote(object_id)
        live = Sandbox.objects.filter(pk=pk).exclude(state=State.ENDED)
        context = {
            "events": Event.objects.filter(sandbox=pk)[:EVENTS_MOST],
            "may_reap": self.has_reap_permission(request) and live.exists(),
            "checkbox": helpers.ACTION_CHECKBOX_NAME,
        }
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})

    def has_reap_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sandboxes.reap_sandbox")

    @admin.action(description="Reap the selected leases", permissions=["reap"])
    def reap(self, request: HttpRequest, queryset: QuerySet[Sandbox]) -> HttpResponse | None:
        """Asks first; then ends them all at once, and tells what has become of each."""
        wanted = list(queryset.exclude(state=State.ENDED).select_related("org", "volume")[: REAP_MOST + 1])
        if not wanted:
            self.message_user(request, "Nothing to reap: the selected leases have ended.", messages.WARNING)
            return None
        if len(wanted) > REAP_MOST:
            self.message_user(request, f"At most {REAP_MOST} leases can be reaped at once; select fewer.", messages.ERROR)
            return None
        may_purge = request.user.has_perm("sandboxes.delete_volume")
        if "confirmed" not in request.POST:
            return confirm(
                request,
                self,
                wanted,
                action="reap",
                title=f"Reap {_count(len(wanted))}?",
                items=[_described(sandbox) for sandbox in wanted],
                warning="What runs in these sandboxes is stopped at once. The work in their volumes is kept.",
                button="Reap",
                option="Also delete their volumes, with all data in them" if may_purge and any(row.volume for row in wanted) else "",
            )
        self._reap(request, wanted, purge=may_purge and "option" in request.POST)
        return None

    def _reap(self, request: HttpRequest, wanted: list[Sandbox], *, purge: bool) -> None:
        ends = leases.end_all(wanted, reason=_REASON, actor=actor(request), purge=purge)
        # On a lease that was ending already, only the order to delete its volume is new.
        with_volume = [sandbox for sandbox in wanted if purge and sandbox.volume]
        log(request, with_volume, "Reaped, with its volume.")
        log(request, [sandbox for sandbox in wanted if sandbox.pk in ends.begun and sandbox not in with_volume], "Reaped.")
        if ends.gone:
            self.message_user(request, f"{_count(len(ends.gone))} ended.", messages.SUCCESS)
        if ends.ending:
            self.message_user(request, f"{_count(len(ends.ending))} still ending: {_listed(ends.ending)}.", messages.INFO)
        if ends.already:
            self.message_user(
                request, f"{_count(len(ends.already))} ended by somebody else before: {_listed(ends.already)}.", messages.INFO
            )
        if ends.failed:
            self.message_user(request, f"{_count(len(ends.failed))} could not be ended yet; it is tried again.", messages.ERROR)
            for pk, reason in list(ends.failed.items())[:10]:
                self.message_user(request, f"{pk}: {Truncator(reason).chars(300)}", messages.ERROR)


def _count(number: int) -> str:
    return f"{number} lease{'' if number == 1 else 's'}"


def _listed(pks: list[str]) -> str:
    return ", ".join(pks[:10]) + (f" and {len(pks) - 10} more" if len(pks) > 10 else "")


def _described(sandbox: Sandbox) -> str:
    """One line of the page that asks: which lease, and what would go with it."""
    held = f", volume {sandbox.volume}" if sandbox.volume else ""
    owner = f"{sandbox.org}/{sandbox.project_slug}" if sandbox.project_slug else str(sandbox.org)
    return format_html("{}: {}, {}, {}{}", link_to(sandbox), owner, sandbox.klass, sandbox.state, held)
