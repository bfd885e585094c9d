"""Every page of the staff's half can be read, costs a bounded number of queries, and shows hostile text as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from admin.conftest import HOSTILE
from sandboxes.models import ApiKey, Event, Org, Project, Sandbox, State, Volume

MODELS = ("sandbox", "org", "project", "volume", "apikey", "event")
READ_ONLY = ("sandbox", "project", "volume", "event")


def listing(model: str, **query: str) -> str:
    return reverse(f"admin:sandboxes_{model}_changelist", query=query)


def page(row: Org | Project | Volume | Sandbox | ApiKey | Event) -> str:
    return reverse(f"admin:sandboxes_{row._meta.model_name}_change", args=[quote(row.pk)])


def test_every_model_is_there(root: Client) -> None:
    ours = {model._meta.model_name for model in admin.site._registry if model._meta.app_label == "sandboxes"}
    assert ours == set(MODELS)
    index = root.get(reverse("admin:index")).content.decode()
    assert "Sandboxhub" in index
    for model in MODELS:
        assert listing(model) in index


def fill(org: Org, lease: Callable[..., Sandbox], number: int) -> list[Org | Project | Volume | Sandbox | ApiKey | Event]:
    """One more of everything, with text that a tenant or a broken runtime could have chosen."""
    sandbox = lease(State.ERROR, project=f"project-{number}", error=HOSTILE, actor=HOSTILE, host=HOSTILE)
    ending = lease(State.ENDING, end_error=HOSTILE, id=f"m_24{number:022x}")  # an id with what the admin takes for an escape
    key, _ = ApiKey.create(org, name=HOSTILE)
    event = Event.objects.create(org=org, sandbox=sandbox.pk, kind="failed", actor=HOSTILE, reason=HOSTILE)
    other, _ = Org.objects.get_or_create(slug=f"org-{number}", defaults={"runtimes": ["gvisor"], "images": [HOSTILE]})
    assert sandbox.project and sandbox.volume
    return [sandbox, ending, key, event, other, sandbox.project, sandbox.volume]


def test_every_page_shows_hostile_text_as_text(root: Client, org: Org, lease: Callable[..., Sandbox]) -> None:
    Org.objects.filter(pk=org.pk).update(slug=HOSTILE)
    rows = fill(org, lease, 1)
    Project.objects.update(slug=HOSTILE)
    Volume.objects.update(name=HOSTILE)
    Sandbox.objects.update(project_slug=HOSTILE, image=HOSTILE)
    paths = [listing(model) for model in MODELS] + [listing(model, q=HOSTILE) for model in MODELS]
    paths += [page(row) for row in rows] + [f"{page(row).removesuffix('change/')}history/" for row in rows]
    paths += [reverse("admin:sandboxes_org_add"), reverse("admin:sandboxes_apikey_add"), listing("sandbox", org=HOSTILE)]
    shown = 0
    for path in paths:
        response = root.get(path)
        assert response.status_code == 200, path
        assert HOSTILE not in response.content.decode(), path
        shown += "&lt;script&gt;alert" in response.content.decode()
    assert shown > len(rows) + len(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_a_list_costs_the_same_queries_however_long_it_is(root: Client, org: Org, lease: Callable[..., Sandbox], model: str) -> None:
    def cost() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert root.get(listing(model)).status_code == 200
        return len(queries)

    fill(org, lease, 0)
    few = cost()
    for number in range(1, 9):
        fill(org, lease, number)
    assert cost() == few <= 12


@pytest.mark.parametrize("model", READ_ONLY)
def test_what_leases_make_is_only_read(root: Client, org: Org, lease: Callable[..., Sandbox], model: str) -> None:
    rows = {row._meta.model_name: row for row in fill(org, lease, 1)}
    path = page(rows[model])
    assert root.get(reverse(f"admin:sandboxes_{model}_add")).status_code == 403
    assert root.post(path, {"slug": "changed"}).status_code == 403
    assert root.post(path.replace("/change/", "/delete/"), {"post": "yes"}).status_code == 403
    listed = root.get(listing(model)).content.decode()
    assert "delete_selected" not in listed


def found(client: Client, model: str, **query: str) -> set[str]:
    return {str(row.pk) for row in client.get(listing(model, **query)).context["cl"].result_list}


def test_leases_are_filtered(root: Client, org: Org, lease: Callable[..., Sandbox]) -> None:
    other = Org.objects.create(slug="other")
    running = lease()
    ending = lease(State.ENDING)
    ended = lease(State.ENDED, runtime="runc")
    dev = lease(State.ERROR, project="site", org=other, error="no such image")
    assert found(root, "sandbox") == {running.pk, ending.pk, ended.pk, dev.pk}
    assert found(root, "sandbox", life="live") == {running.pk, dev.pk}
    assert found(root, "sandbox", life="ending") == {ending.pk}
    assert found(root, "sandbox", life="ended") == {ended.pk}
    assert found(root, "sandbox", state__exact="error") == {dev.pk}
    assert found(root, "sandbox", **{"class": "dev"}) == {dev.pk}
    assert found(root, "sandbox", runtime="runc") == {ended.pk}
    assert found(root, "sandbox", org="other") == {dev.pk}
    assert found(root, "sandbox", org="nobody") == set()


def test_leases_are_found(root: Client, org: Org, lease: Callable[..., Sandbox]) -> None:
    site = lease(project="site")
    other = lease(host="metal-7")
    assert found(root, "sandbox", q=site.pk) == {site.pk}
    assert found(root, "sandbox", q=site.container) == {site.pk}
    assert found(root, "sandbox", q=site.pk[:14]) == {site.pk}
    assert found(root, "sandbox", q="site") == {site.pk}
    assert found(root, "sandbox", q="metal-7") == {other.pk}
    assert found(root, "sandbox", q="acme") == {site.pk, other.pk}
    assert found(root, "sandbox", q="nothing") == set()


def test_a_lease_tells_its_story(root: Client, org: Org, lease: Callable[..., Sandbox]) -> None:
    sandbox = lease(State.ENDING, project="site", end_error="the disk is busy", host="metal-7")
    Event.objects.create(org=org, sandbox=sandbox.pk, kind="ending", actor="reaper", reason="lease expired")
    Event.objects.create(org=org, sandbox="m_someone-else", kind="ending", actor="nobody", reason="not of this one")
    shown = root.get(page(sandbox)).content.decode()
    assert sandbox.project and sandbox.volume
    for text in (sandbox.container, "the disk is busy", "metal-7", "lease expired", page(org), page(sandbox.project), page(sandbox.volume)):
        assert text in shown
    assert "not of this one" not in shown


def test_events_volumes_and_projects_are_found(root: Client, org: Org, lease: Callable[..., Sandbox]) -> None:
    sandbox = lease(project="site")
    other = lease(State.ENDED, project="shop")
    event = Event.objects.create(org=org, sandbox=sandbox.pk, kind="leased", actor="key sbx_1")
    Event.objects.create(kind="reaped", actor="reaper")
    assert sandbox.volume and other.project
    assert found(root, "event", q=sandbox.pk) == {str(event.pk)}
    assert found(root, "event", q=sandbox.container) == {str(event.pk)}
    assert found(root, "event", org="acme") == {str(event.pk)}
    assert found(root, "volume", q="site") == {str(sandbox.volume.pk)}
    assert found(root, "project", q="shop") == {str(other.project.pk)}
    listed = root.get(listing("project")).content.decode()
    assert page(sandbox) in listed and page(other) not in listed


def test_a_long_history_is_counted_only_so_far(root: Client, org: Org, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.admin.base.COUNT_MOST", 120)
    Event.objects.bulk_create(Event(org=org, kind="leased", actor=f"key {number}") for number in range(300))
    assert root.get(listing("event")).context["cl"].result_count == 121
    assert root.get(listing("event", q="key 299")).context["cl"].result_count == 1


def test_strangers_see_nothing(client: Client, staff: Callable[..., Client], org: Org, lease: Callable[..., Sandbox]) -> None:
    sandbox = lease()
    sam = staff("view_org")
    for path in (listing("sandbox"), page(sandbox)):
        assert client.get(path).status_code == 302
        assert sam.get(path).status_code == 403
    assert sam.get(listing("org")).status_code == 200
    assert sam.get(page(org)).status_code == 200
