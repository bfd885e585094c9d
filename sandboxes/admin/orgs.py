"""Orgs: made here, with their ceilings and what they may ask for."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html_join

from sandboxes import policy
from sandboxes.admin.base import CappedPaginator, ModelAdmin, ModelForm, actor, list_link
from sandboxes.admin.keys import ask_and_revoke
from sandboxes.lifecycle import transitions
from sandboxes.models import COUNTED, PUBLIC, ApiKey, Org, Project, Sandbox, Volume

_IMAGE_LENGTH = 255


class OrgForm(ModelForm[Org]):
    runtimes = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, help_text="Runtimes that it may ask for; none ticked: all that are offered."
    )
    images = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 60}),
        help_text="Images that it may ask for beside those of the classes, one a line.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = settings.SANDBOXHUB_RUNTIMES
        gone = [(name, f"{name} (not offered here any more)") for name in self.instance.runtimes if name not in offered]
        runtimes = cast(forms.MultipleChoiceField, self.fields["runtimes"])
        runtimes.choices = [(name, name) for name in offered] + gone
        self.initial["images"] = "\n".join(self.instance.images)

    def clean_slug(self) -> str:
        slug: str = self.cleaned_data["slug"]
        if policy.slug(slug) != slug:
            raise forms.ValidationError("Use only a-z, 0-9 and -, with a letter or digit at both ends.")
        return slug

    def clean_images(self) -> list[str]:
        names = list(dict.fromkeys(self.cleaned_data["images"].split()))
        for name in names:
            if len(name) > _IMAGE_LENGTH or not name.isprintable():
                raise forms.ValidationError(f"The name of an image has at most {_IMAGE_LENGTH} printable characters.")
        return names


@admin.register(Org)
class OrgAdmin(ModelAdmin[Org]):
    form = OrgForm
    list_display = ("slug", "live", "exec_use", "runtime_text", "created_at")
    list_per_page = 50
    paginator = CappedPaginator
    show_full_result_count = False
    search_fields = ("slug",)
    actions = ("revoke",)

    def get_fields(self, request: HttpRequest, obj: Org | None = None) -> Any:
        made = ("slug", "exec_ceiling", "runtimes", "images")
        return made if obj is None else (*made, "created_at", "exec_use", "related")

    def get_readonly_fields(self, request: HttpRequest, obj: Org | None = None) -> Any:
        """The slug stays: the names of volumes are made of it."""
        return () if obj is None else ("slug", "created_at", "exec_use", "related")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Org]:
        return super().get_queryset(request).annotate(live_leases=_number(state__in=PUBLIC), execs=_number(klass="exec", state__in=COUNTED))

    @admin.display(description="live leases")
    def live(self, org: Org) -> str:
        return list_link("sandbox", str(org.live_leases), org=org.slug, life="live")  # type: ignore[attr-defined]

    @admin.display(description="exec in use")
    def exec_use(self, org: Org) -> str:
        return f"{org.execs} of {transitions.ceiling(org)}"  # type: ignore[attr-defined]

    @admin.display(description="runtimes")
    def runtime_text(self, org: Org) -> str:
        return ", ".join(org.runtimes) or "all"

    @admin.display(description="what it has")
    def related(self, org: Org) -> str:
        models = ("sandbox", "Leases"), ("project", "Projects"), ("volume", "Volumes"), ("apikey", "API keys"), ("event", "Events")
        return format_html_join(" · ", "{}", ((list_link(model, text, org=org.slug),) for model, text in models))

    def get_actions(self, request: HttpRequest) -> Any:
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def has_delete_permission(self, request: HttpRequest, obj: Org | None = None) -> bool:
        """An org that has or had leases is history, and one with a key that works is in use."""
        return super().has_delete_permission(request, obj) and (obj is None or not _in_use(obj))

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sandboxes.change_apikey")

    @admin.action(description="Revoke all keys of the selected orgs", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Org]) -> Any:
        orgs = list(queryset)
        return ask_and_revoke(request, self, orgs, ApiKey.objects.filter(org__in=orgs))

    def save_model(self, request: HttpRequest, obj: Org, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        transitions.record("org changed" if change else "org created", org_id=obj.pk, actor=actor(request), reason=obj.slug)


def _number(**which: Any) -> Coalesce:
    """How many such leases an org has: counted for the rows of one page only, by the index of live leases."""
    found = Sandbox.objects.filter(org=OuterRef("pk"), **which).order_by().values("org").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(found, output_field=IntegerField()), Value(0))


def _in_use(org: Org) -> bool:
    live = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    return (
        Sandbox.objects.filter(org=org).exists()
        or Project.objects.filter(org=org).exists()
        or Volume.objects.filter(org=org).exists()
        or ApiKey.objects.filter(live, org=org, revoked_at=None).exists()
    )
