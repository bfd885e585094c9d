"""Passwords of staff are not to be guessed."""

from __future__ import annotations

from datetime import timedelta

import pytest
import requests
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client
from harness.server import Server

from .browser import Browser, token

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
LIMIT = settings.AXES_FAILURE_LIMIT


@pytest.fixture(autouse=True)
def users(db: None) -> None:
    for name in ("ann", "bob"):
        User.objects.create_superuser(name, password="correct horse battery")


def sign_in(user: str = "ann", *, right: bool = True, address: str = HERE) -> int:
    """302 when it worked, 200 with the form again when it did not, 429 when it was not even tried."""
    form = {"username": user, "password": "correct horse battery" if right else "wrong"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address).status_code


def lock_out() -> None:
    assert [sign_in(right=False) for _ in range(LIMIT)] == [200] * (LIMIT - 1) + [429]


def test_it_is_over_for_a_while() -> None:
    lock_out()
    assert sign_in() == 429
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - settings.AXES_COOLOFF_TIME - timedelta(seconds=1))
    assert sign_in() == 302


def test_trying_on_does_not_prolong_it() -> None:
    lock_out()
    before = AccessAttempt.objects.get().attempt_time
    assert sign_in(right=False) == 429
    assert AccessAttempt.objects.get().attempt_time == before


def test_nobody_else_is_locked_out() -> None:
    lock_out()
    assert sign_in(address=ELSEWHERE) == 302
    assert sign_in("bob") == 302


def test_some_wrong_ones_are_forgotten_after_the_right_one() -> None:
    for _ in range(2):
        assert {sign_in(right=False) for _ in range(LIMIT - 1)} == {200}
        assert sign_in() == 302


def test_another_superuser_lets_them_in_again(root: Client) -> None:
    lock_out()
    attempts = AccessAttempt.objects.values_list("pk", flat=True)
    root.post("/admin/axes/accessattempt/", {"action": "delete_selected", "_selected_action": list(attempts), "post": "yes"})
    assert sign_in() == 302


@pytest.mark.parametrize("address", ["", "unknown", "192.0.2.1:99", "\x00", "fe80::1%eth0", "x" * 10_000])
def test_an_address_that_is_none(address: str) -> None:
    """A proxy may have said it."""
    assert [sign_in(right=False, address=address) for _ in range(LIMIT)][-1] == 429
    assert sign_in(address=ELSEWHERE) == 302


def test_a_live_server_says_so(server: Server) -> None:
    Browser(server)
    with requests.Session() as session:
        page = session.get(f"{server.url}/admin/login/", timeout=60).text
        form = {"username": "nobody", "password": "wrong", "csrfmiddlewaretoken": token(page)}
        answers = [session.post(f"{server.url}/admin/login/", form, timeout=60) for _ in range(LIMIT + 1)]
    assert [answer.status_code for answer in answers] == [200] * (LIMIT - 1) + [429] * 2
    assert f"{LIMIT} attempts to sign in as this user failed" in answers[-1].text
    assert "Wait 15 minutes" in answers[-1].text
    Browser(server)
