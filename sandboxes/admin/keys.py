"""API keys: made, shown once, revoked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from sandboxes.admin.base import ModelAdmin, ModelForm, OrgFilter, actor, confirm, link_to, log
from sandboxes.lifecycle.transitions import record
from sandboxes.models import ApiKey

_KEY = re.compile(r"sbx_([0-9a-f]{12})(_\S*)?")


def unrevoked(keys: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
    return keys.filter(revoked_at=None)


def revoke(request: HttpRequest, keys: Iterable[ApiKey]) -> int:
    """Revoke keys for ever, and record who did it; how many there were."""
    revoked = []
    with transaction.atomic():
        for key in keys:
            if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
                record("key revoked", org_id=key.org_id, actor=actor(request), reason=str(key))
                revoked.append(key)
        log(request, revoked, "Revoked.")
    return len(revoked)


def ask_and_revoke(request: HttpRequest, model_admin: admin.ModelAdmin[Any], rows: Iterable[Any], keys: QuerySet[ApiKey]) -> Any:
    """The action behind both lists that revoke: of ``keys``, which the selected ``rows`` stand for."""
    wanted = list(unrevoked(keys).select_related("org"))
    if not wanted:
        model_admin.message_user(request, "Nothing to revoke.", messages.WARNING)
        return None
    if "confirmed" not in request.POST:
        return confirm(
            request,
            model_admin,
            rows,
            action="revoke",
            title=f"Revoke {len(wanted)} key{'' if len(wanted) == 1 else 's'}?",
            items=[f"{key} of {key.org} {key.name}" for key in wanted],
            warning="Whoever uses these keys is refused from now on. This cannot be undone.",
            button="Revoke",
        )
    model_admin.message_user(request, f"Revoked: {revoke(request, wanted)}.", messages.SUCCESS)
    return None


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("live", "Live"), ("expired", "Expired"), ("revoked", "Revoked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        now = timezone.now()
        match self.value():
            case "live":
                return queryset.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)
            case "expired":
                return queryset.filter(expires_at__lte=now, revoked_at=None)
            case "revoked":
                return queryset.exclude(revoked_at=None)
        return queryset


class KeyForm(ModelForm[ApiKey]):
    scopes = forms.MultipleChoiceField(
        choices=[(scope.value, f"{scope.value}: {scope.label}") for scope in ApiKey.Scope],
        widget=forms.CheckboxSelectMultiple,
        initial=ApiKey.Scope.values,
    )

    def clean_expires_at(self) -> Any:
        expires = self.cleaned_data["expires_at"]
        if expires is not None and expires <= timezone.now():
            raise forms.ValidationError("That has passed already.")
        return expires


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin[ApiKey]):
    form = KeyForm
    list_display = ("__str__", "name", "org_link", "scope_text", "state", "created_at", "expires_at", "last_used_at")
    list_filter = (StateFilter, OrgFilter)
    list_select_related = ("org",)
    list_per_page = 50
    show_full_result_count = False
    search_fields = ("prefix", "name", "org__slug")
    search_help_text = "The key's first part, its name, or org"
    autocomplete_fields = ("org",)
    actions = ("revoke",)
    fields = ("org", "name", "scopes", "expires_at")

    @admin.display(description="org", ordering="org__slug")
    def org_link(self, key: ApiKey) -> str:
        return link_to(key.org)

    @admin.display(description="scopes")
    def scope_text(self, key: ApiKey) -> str:
        return ", ".join(key.scopes)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        if key.revoked_at is not None:
            return "revoked"
        return "live" if key.is_live(timezone.now()) else "expired"

    # A key says the same for ever: to change what it may do, make another and revoke it.

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        if obj is None:
            return self.fields
        return ("__str__", "state", "org", "name", "scope_text", "created_at", "expires_at", "last_used_at", "revoked_at")

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        if obj is None:
            return ()
        # "scopes" is not shown again, but only what is named here is taken off the form.
        return [*(name for name in self.get_fields(request, obj) if name != "name"), "scopes"]

    def get_actions(self, request: HttpRequest) -> Any:
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[ApiKey], search_term: str) -> tuple[QuerySet[ApiKey], bool]:
        """A key as a tenant reports it finds itself."""
        return super().get_search_results(request, queryset, _KEY.sub(r"\1", search_term))

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """A key that works must be revoked first."""
        return (obj is None or not obj.is_live(timezone.now())) and super().has_delete_permission(request, obj)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sandboxes.change_apikey")

    @admin.action(description="Revoke the selected keys", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> Any:
        return ask_and_revoke(request, self, list(queryset), queryset)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if change:
            obj.save(update_fields=["name"])  # nothing else, so that a revocation meanwhile stands
            return
        obj.issue()
        super().save_model(request, obj, form, change)
        record("key created", org_id=obj.org_id, actor=actor(request), reason=str(obj))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"show_save_and_continue": False, "show_save_and_add_another": False, **(extra_context or {})}
        return super().add_view(request, form_url, context)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """The one page that shows the key. Nothing that outlives this response holds it: no session, cookie or log."""
        context = {**self.admin_site.each_context(request), "opts": self.opts, "title": "The new key", "key": obj}
        return TemplateResponse(request, "admin/sandboxes/apikey/created.html", context, headers={"Cache-Control": "no-store"})
