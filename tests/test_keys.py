"""API keys as their holders meet them: what opens, what is refused, and what is kept of them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sandboxes.models import ApiKey, Event, Org

KEY = re.compile(r"sbx_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
pytestmark = pytest.mark.django_db


@pytest.fixture
def org() -> Org:
    return Org.objects.create(slug="acme")


def projects(header: str) -> Any:
    """The answer to a request that needs the scope ``read`` and no engine."""
    return Client().get("/v1/projects", headers={"Authorization": header} if header else {})


def refusal(header: str) -> bytes:
    response = projects(header)
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")
    assert response.json()["code"] == "unauthorized"
    return bytes(response.content)


def stored() -> Iterator[str]:
    """Every value in every table."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            yield from (str(value) for row in cursor.fetchall() for value in row)


def test_a_key_opens_its_org(org: Org) -> None:
    _, text = ApiKey.create(org)
    assert KEY.fullmatch(text)
    assert projects(f"Bearer {text}").status_code == 200
    assert projects(f"bearer  {text} ").status_code == 200


def test_the_secret_is_not_stored(org: Org) -> None:
    _, text = ApiKey.create(org)
    projects(f"Bearer {text}")
    secret = text.rpartition("_")[2] if text.count("_") == 2 else text[17:]
    assert not [value for value in stored() if secret in value]


def test_every_bad_key_gets_the_same_answer(org: Org) -> None:
    now = timezone.now()
    good, text = ApiKey.create(org)
    revoked, revoked_text = ApiKey.create(org)
    ApiKey.objects.filter(pk=revoked.pk).update(revoked_at=now)
    _, expired_text = ApiKey.create(org, expires_at=now - timedelta(seconds=1))
    other_secret = f"sbx_{good.prefix}_{'a' * 43}"
    unknown = f"sbx_{'0' * 12}_{text[17:]}"
    headers = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        f"Basic {text}",
        text,
        f"Bearer {text}x",
        f"Bearer {text[:-1]}",
        f"Bearer {text.upper()}",
    ]
    headers += [f"Bearer {key}" for key in (revoked_text, expired_text, other_secret, unknown)]
    assert len({refusal(header) for header in headers}) == 1


def test_a_key_works_until_it_expires(org: Org) -> None:
    key, text = ApiKey.create(org, expires_at=timezone.now() + timedelta(hours=1))
    assert projects(f"Bearer {text}").status_code == 200
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())
    refusal(f"Bearer {text}")


def test_a_key_does_what_its_scopes_say(org: Org) -> None:
    _, text = ApiKey.create(org, scopes=["read"])
    assert projects(f"Bearer {text}").status_code == 200
    client = Client(headers={"Authorization": f"Bearer {text}"})
    response = client.post("/v1/projects", {"project": "site"}, content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    _, none = ApiKey.create(org, scopes=[])
    assert projects(f"Bearer {none}").status_code == 403


def test_last_use_is_recorded_without_a_write_per_request(org: Org) -> None:
    key, text = ApiKey.create(org)
    projects(f"Bearer {text}")
    key.refresh_from_db()
    assert key.last_used_at is not None
    with CaptureQueriesContext(connection) as queries:
        projects(f"Bearer {text}")
    assert not [query for query in queries if query["sql"].startswith("UPDATE")]
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    with CaptureQueriesContext(connection) as queries:
        projects(f"Bearer {text}")
    assert len([query for query in queries if query["sql"].startswith("UPDATE")]) == 1


def createkey(*arguments: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    call_command("createkey", *arguments, stdout=out, stderr=err)
    assert err.getvalue() == ""
    return out.getvalue()


def test_createkey_prints_the_key_alone() -> None:
    printed = createkey("acme")
    assert KEY.fullmatch(printed.removesuffix("\n"))
    assert projects(f"Bearer {printed.strip()}").status_code == 200
    key = ApiKey.objects.get()
    assert (key.org.slug, key.scopes, key.expires_at) == ("acme", ["read", "use", "manage"], None)
    event = Event.objects.get()
    assert (event.kind, event.actor, event.reason, event.org) == ("key created", "createkey", str(key), key.org)


def test_createkey_adds_to_an_org_that_is_there(org: Org) -> None:
    assert createkey("acme") != createkey("acme")
    assert Org.objects.get() == org
    assert ApiKey.objects.count() == 2


def test_createkey_takes_name_scopes_and_days() -> None:
    createkey("acme", "--name", "ci", "--scopes", "use, read,read", "--days", "7")
    key = ApiKey.objects.get()
    assert (key.name, key.scopes) == ("ci", ["read", "use"])
    assert key.expires_at is not None
    assert abs(key.expires_at - timezone.now() - timedelta(days=7)) < timedelta(hours=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("",),
        ("Acme",),
        ("a_b",),
        ("-acme-", "--name", "x"),
        ("a" * 49,),
        ("acme", "--scopes", "root"),
        ("acme", "--scopes", ""),
        ("acme", "--days", "0"),
        ("acme", "--days", "99999999"),
        ("acme", "--days", "soon"),
        ("acme", "--name", "n" * 81),
    ],
)
def test_createkey_refuses_and_makes_nothing(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        createkey(*arguments)
    assert not Org.objects.exists()
