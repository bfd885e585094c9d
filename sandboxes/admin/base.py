"""What the pages of all models share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html

from sandboxes.models import Org

COUNT_MOST = 10_000  #: rows that a list counts; the rest is found by searching and filtering
ORGS_MOST = 50  #: orgs that a filter shows; the others' lists are reached from their own page
EMPTY = "-"
_LEASE = re.compile(r"m[_-]([0-9a-f]{24})(?:-\d{4})?")

# Django's own classes can be subscripted by a type checker only.
if TYPE_CHECKING:
    AnyPaginator = Paginator[Model]
    ModelAdmin = admin.ModelAdmin
    ModelForm = forms.ModelForm
else:
    AnyPaginator = Paginator

    class ModelAdmin(admin.ModelAdmin):
        __class_getitem__ = classmethod(lambda cls, model: cls)

    class ModelForm(forms.ModelForm):
        __class_getitem__ = classmethod(lambda cls, model: cls)


class CappedPaginator(AnyPaginator):
    """Counts no further than COUNT_MOST, so that a page of a long history costs no walk through all of it."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list[: COUNT_MOST + 1]
        return int(rows.count())


class OrgFilter(admin.SimpleListFilter):
    """By org. ``?org=SLUG`` works for every org, also for one that is not among the first."""

    title = "org"
    parameter_name = "org"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        slugs = list(Org.objects.values_list("slug", flat=True)[:ORGS_MOST])
        if (chosen := self.value()) and chosen not in slugs:
            slugs.insert(0, chosen)
        return [(slug, slug) for slug in slugs]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(org__slug=value) if (value := self.value()) else queryset


class ReadOnlyAdmin(ModelAdmin[Any]):
    """Found, filtered and read; never written by hand."""

    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def lease_in(term: str) -> str | None:
    """The lease that a search names whole, by its id or its container's: found by its key, not by a walk through the table."""
    match = _LEASE.fullmatch(term.strip())
    return f"m_{match[1]}" if match else None


def actor(request: HttpRequest) -> str:
    """The member of staff, as events name them."""
    return f"staff {request.user.get_username()}"[:80]


def log(request: HttpRequest, rows: Iterable[Model], message: str) -> None:
    """Tell it in the admin's own history of each row."""
    LogEntry.objects.log_actions(cast(int, request.user.pk), rows, CHANGE, change_message=message)


def page_of(row: Model) -> str:
    return reverse(f"admin:sandboxes_{row._meta.model_name}_change", args=[quote(row.pk)])  # the admin takes "_24" for "$"


def link_to(row: Model | None, text: str = "") -> str:
    """A link to the row's own page."""
    return format_html('<a href="{}">{}</a>', page_of(row), text or str(row)) if row is not None else EMPTY


def list_link(model: str, text: str, **query: str) -> str:
    """A link to a list of ``model``, filtered by ``query``."""
    return format_html('<a href="{}">{}</a>', reverse(f"admin:sandboxes_{model}_changelist", query=query), text)


def confirm(
    request: HttpRequest,
    model_admin: admin.ModelAdmin[Any],
    rows: Iterable[Model],
    *,
    action: str,
    title: str,
    items: Iterable[str],
    warning: str,
    button: str,
    option: str = "",
) -> TemplateResponse:
    """The page that asks before an action is done; it posts the same action again, with ``confirmed`` and, if ticked, ``option``."""
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.model._meta,
        "title": title,
        "action": action,
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "rows": rows,
        "items": items,
        "warning": warning,
        "button": button,
        "option": option,
    }
    return TemplateResponse(request, "admin/sandboxes/confirm.html", context)
