"""Orgs and keys are made and revoked by staff; a key is shown once."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from sandboxes.models import ApiKey, Event, Org, Project, Sandbox, State

ORGS = "/admin/sandboxes/org/"
KEYS = "/admin/sandboxes/apikey/"


def opens(text: str) -> bool:
    return Client().get("/v1/projects", headers={"Authorization": f"Bearer {text}"}).status_code == 200


def make(client: Client, org: Org, **fields: Any) -> HttpResponse:
    return client.post(f"{KEYS}add/", {"org": str(org.pk), "name": "ci", "scopes": ["read"], **fields})  # type: ignore[return-value]


def shown(response: HttpResponse) -> str:
    """The key on a page."""
    (text,) = re.findall(r"sbx_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", html.unescape(response.content.decode()))
    return str(text)


def complaints(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    return dict(response.context["adminform"].form.errors)


def revoke(client: Client, path: str, *rows: Org | ApiKey, **fields: str) -> Any:
    return client.post(path, {"action": "revoke", "_selected_action": [row.pk for row in rows], **fields})


# Orgs


def test_an_org_is_made(root: Client) -> None:
    page = root.get(f"{ORGS}add/").content.decode()
    assert 'type="checkbox" name="runtimes" value="gvisor"' in page
    fields = {"slug": "acme", "exec_ceiling": "3", "runtimes": ["gvisor"], "images": "python:3\nnode:22\npython:3\n"}
    assert root.post(f"{ORGS}add/", fields).status_code == 302
    org = Org.objects.get()
    assert (org.slug, org.exec_ceiling, org.runtimes, org.images) == ("acme", 3, ["gvisor"], ["python:3", "node:22"])
    assert [(event.kind, event.actor) for event in Event.objects.all()] == [("org created", "staff root")]
    assert "python:3\nnode:22" in root.get(f"{ORGS}{org.pk}/change/").content.decode()


def test_an_org_needs_only_a_slug(root: Client) -> None:
    assert root.post(f"{ORGS}add/", {"slug": "acme"}).status_code == 302
    org = Org.objects.get()
    assert (org.exec_ceiling, org.runtimes, org.images) == (None, [], [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slug", ""),
        ("slug", "Acme"),
        ("slug", "a_b"),
        ("slug", "-acme"),
        ("slug", "a b"),
        ("slug", "a" * 49),
        ("exec_ceiling", "-1"),
        ("exec_ceiling", "many"),
        ("runtimes", "docker"),
        ("images", "x" * 256),
        ("images", "a\u200bb"),
    ],
)
def test_a_bad_org_is_refused(root: Client, field: str, value: str) -> None:
    assert list(complaints(root.post(f"{ORGS}add/", {"slug": "acme", field: value}))) == [field]
    assert not Org.objects.exists()


def test_an_org_keeps_its_slug_and_what_is_not_offered_any_more(root: Client) -> None:
    org = Org.objects.create(slug="acme", runtimes=["runc"])
    path = f"{ORGS}{org.pk}/change/"
    assert "runc (not offered here any more)" in root.get(path).content.decode()
    assert root.post(path, {"slug": "other", "exec_ceiling": "5", "runtimes": ["runc", "gvisor"], "images": ""}).status_code == 302
    org.refresh_from_db()
    assert (org.slug, org.exec_ceiling, org.runtimes) == ("acme", 5, ["runc", "gvisor"])


def test_an_org_shows_what_it_uses(root: Client, org: Org, lease: Callable[..., Sandbox]) -> None:
    lease(), lease(State.PENDING), lease(State.ERROR), lease(State.ENDED), lease(project="site")
    Org.objects.create(slug="idle", exec_ceiling=0)
    listed = root.get(ORGS).content.decode()
    assert "2 of 16" in listed and "0 of 0" in listed
    assert re.search(r'life=live">4</a>', listed)


def test_an_org_in_use_is_not_deleted(root: Client, org: Org, lease: Callable[..., Sandbox]) -> None:
    path = f"{ORGS}{org.pk}/delete/"

    def is_kept() -> bool:
        response = root.post(path, {"post": "yes"})
        return response.status_code == 403 and Org.objects.filter(pk=org.pk).exists()

    sandbox = lease(State.ENDED)
    assert is_kept()
    sandbox.delete()
    project = Project.objects.create(org=org, slug="site")
    assert is_kept()
    project.delete()
    key, _ = ApiKey.create(org)
    assert is_kept()
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
    Event.objects.create(org=org, kind="key created", actor="createkey")
    assert root.post(path, {"post": "yes"}).status_code == 302
    assert not Org.objects.exists()
    assert Event.objects.get().org is None


# Keys


def test_a_key_is_made_and_shown_once(root: Client, org: Org, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    response = make(root, org, scopes=["read", "use"])
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    text = shown(response)
    assert opens(text)
    key = ApiKey.objects.get()
    assert (key.org, key.name, key.scopes, key.expires_at, str(key)) == (org, "ci", ["read", "use"], None, text[:16])
    event = Event.objects.get()
    assert (event.kind, event.actor, event.reason) == ("key created", "staff root", str(key))

    secret = text[17:]
    for path in (KEYS, f"{KEYS}{key.pk}/change/", f"{KEYS}{key.pk}/history/", "/admin/"):
        assert secret not in root.get(path).content.decode()
    assert secret not in str(root.cookies)
    assert secret not in caplog.text
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            assert secret not in str(cursor.fetchall())
    assert secret not in str(dict(root.session))


def test_the_form_of_a_key(root: Client, org: Org) -> None:
    page = root.get(f"{KEYS}add/").content.decode()
    for scope in ApiKey.Scope.values:
        assert f'type="checkbox" name="scopes" value="{scope}"' in page
    assert list(complaints(make(root, org, scopes=[]))) == ["scopes"]
    assert list(complaints(make(root, org, scopes=["root"]))) == ["scopes"]
    past = timezone.now() - timedelta(minutes=1)
    assert list(complaints(make(root, org, expires_at_0=f"{past:%Y-%m-%d}", expires_at_1=f"{past:%H:%M:%S}"))) == ["expires_at"]
    assert not ApiKey.objects.exists()
    assert shown(make(root, org, expires_at_0="2999-12-31", expires_at_1="00:00:00"))
    expires = ApiKey.objects.get().expires_at
    assert expires is not None and expires.year == 2999


def test_only_the_name_of_a_key_changes(root: Client, org: Org) -> None:
    key, text = ApiKey.create(org, name="old", scopes=["read"])
    other = Org.objects.create(slug="other")
    fields = {
        "name": "new",
        "org": str(other.pk),
        "scopes": ["manage"],
        "digest": "0",
        "revoked_at_0": "2000-01-01",
        "revoked_at_1": "00:00:00",
    }
    assert root.post(f"{KEYS}{key.pk}/change/", fields).status_code == 302
    key.refresh_from_db()
    assert (key.name, key.org, key.scopes, key.revoked_at) == ("new", org, ["read"], None)
    assert opens(text)
    assert root.post(f"{KEYS}{key.pk}/change/", {"name": "newer"}).status_code == 302
    key.refresh_from_db()
    assert (key.name, key.scopes) == ("newer", ["read"])


def test_a_key_is_revoked_for_ever(root: Client, org: Org) -> None:
    key, text = ApiKey.create(org, name="ci")
    kept, kept_text = ApiKey.create(org)
    asked = revoke(root, KEYS, key).content.decode()
    assert "Revoke 1 key?" in asked and str(key) in asked and str(kept) not in asked
    assert opens(text)
    assert revoke(root, KEYS, key, confirmed="Revoke").status_code == 302
    assert not opens(text) and opens(kept_text)
    event = Event.objects.get()
    assert (event.kind, event.actor, event.reason, event.org) == ("key revoked", "staff root", str(key), org)
    entry = LogEntry.objects.get(object_id=key.pk)
    assert (entry.user.get_username(), entry.change_message) == ("root", "Revoked.")

    key.refresh_from_db()
    since = key.revoked_at
    revoke(root, KEYS, key, confirmed="Revoke")
    root.post(f"{KEYS}{key.pk}/change/", {"name": "back", "revoked_at_0": "", "revoked_at_1": ""})
    key.refresh_from_db()
    assert (key.revoked_at, key.name) == (since, "back")
    assert Event.objects.count() == 1


def test_all_keys_of_an_org_are_revoked(root: Client, org: Org) -> None:
    texts = [ApiKey.create(org)[1] for _ in range(3)]
    other = ApiKey.create(Org.objects.create(slug="other"))[1]
    assert "Revoke 3 keys?" in revoke(root, ORGS, org).content.decode()
    revoke(root, ORGS, org, confirmed="Revoke")
    assert not any(opens(text) for text in texts)
    assert opens(other)
    assert Event.objects.filter(kind="key revoked", org=org).count() == 3


def test_who_may_not_change_keys_cannot_revoke(staff: Callable[..., Client], org: Org) -> None:
    key, text = ApiKey.create(org)
    sam = staff("view_apikey", "view_org")
    for path, row in ((KEYS, key), (ORGS, org)):
        assert 'value="revoke"' not in sam.get(path).content.decode()
        revoke(sam, path, row, confirmed="Revoke")
    assert make(sam, org).status_code == 403
    assert opens(text)


def test_a_key_that_works_is_not_deleted(root: Client, org: Org) -> None:
    key, _ = ApiKey.create(org)
    path = f"{KEYS}{key.pk}/delete/"
    assert root.post(path, {"post": "yes"}).status_code == 403
    assert "delete_selected" not in root.get(KEYS).content.decode()
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
    assert root.post(path, {"post": "yes"}).status_code == 302
    assert not ApiKey.objects.exists()


def test_keys_are_found(root: Client, org: Org) -> None:
    now = timezone.now()
    live, text = ApiKey.create(org, name="deploy")
    expired, _ = ApiKey.create(org, expires_at=now - timedelta(days=1))
    revoked, _ = ApiKey.create(Org.objects.create(slug="other"))
    ApiKey.objects.filter(pk=revoked.pk).update(revoked_at=now)

    def found(**query: str) -> set[ApiKey]:
        return set(root.get(KEYS, query).context["cl"].result_list)

    assert found() == {live, expired, revoked}
    assert found(state="live") == {live}
    assert found(state="expired") == {expired}
    assert found(state="revoked") == {revoked}
    assert found(org="other") == {revoked}
    assert found(q="deploy") == {live}
    assert found(q=str(expired)) == {expired}
    assert found(q=text) == {live}
