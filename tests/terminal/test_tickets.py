"""Tickets and the handshake: who is let in, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.client import Api, Lease, check_problem
from harness.server import Server
from harness.waiting import at_once
from websockets.exceptions import InvalidStatus

from .client import Terminal, address, refused, ticket


@pytest.mark.parametrize("prefix", ["/sandbox", "/sandboxes"])
def test_a_ticket_names_the_page_under_the_prefix_that_was_called(one_box: Lease, prefix: str) -> None:
    response = one_box.api.post(f"{prefix}/{one_box.id}/terminal/ticket")
    assert response.status_code == 201
    body = response.json()
    assert set(body) == {"ticket", "expiresIn", "url"}
    assert body["expiresIn"] == 30
    assert len(body["ticket"]) == 43
    assert body["url"] == f"/v1{prefix}/{one_box.id}/terminal?ticket={body['ticket']}"


def test_a_ticket_needs_a_running_sandbox_of_the_org(server: Server, one_box: Lease) -> None:
    other = server.api("globex")
    for api, pk in ((other, one_box.id), (other, "m_" + "0" * 24), (one_box.api, "nonsense")):
        api.refuses(404, "not_found", "POST", f"/sandboxes/{pk}/terminal/ticket")
    server.api("acme", "read").refuses(403, "forbidden", "POST", f"{one_box.path}/terminal/ticket")


def test_check_19_a_ticket_opens_one_terminal_once(one_box: Lease) -> None:
    text = ticket(one_box)
    with Terminal(one_box, ticket=text):
        assert refused(address(one_box, ticket=text))["code"] == "ticket_invalid"
    assert refused(address(one_box, ticket=text))["code"] == "ticket_invalid"


@pytest.mark.parametrize("query", [{}, {"ticket": ""}, {"ticket": "x" * 43}, {"ticket": "\N{PILE OF POO}"}, {"ticket": "a" * 5000}])
def test_check_19_no_ticket_no_upgrade(one_box: Lease, query: dict[str, str]) -> None:
    problem = refused(address(one_box, **query))
    assert (problem["status"], problem["code"]) == (401, "ticket_invalid")


def test_check_19_an_expired_ticket_is_refused(server: Server, one_box: Lease) -> None:
    text = ticket(one_box)
    server.manage(
        "shell",
        "-c",
        "from terminals.models import Ticket; from django.utils import timezone; Ticket.objects.update(expires_at=timezone.now())",
    )
    assert refused(address(one_box, ticket=text))["status"] == 401


def test_a_ticket_is_spent_by_the_wrong_sandbox_and_by_its_own_alike(one_box: Lease, fresh: Callable[..., Lease]) -> None:
    text, other = ticket(one_box), fresh()
    assert refused(address(other, ticket=text))["status"] == 401
    assert refused(address(one_box, ticket=text))["status"] == 401


@pytest.mark.parametrize("arg", ["-x", "a b", "a/b", "a" * 65, "ä", "a;b", "$(id)", "a\n"])
def test_a_bad_arg_is_told_before_the_ticket_is_spent(one_box: Lease, arg: str) -> None:
    text = ticket(one_box)
    if arg.strip() != arg:
        arg = "x" + arg + "y"
    problem = refused(address(one_box, ticket=text, arg=arg))
    assert (problem["status"], problem["code"]) == (400, "invalid_arg")
    Terminal(one_box, ticket=text).socket.close()


def test_check_20_a_foreign_origin_is_refused(one_box: Lease) -> None:
    text = ticket(one_box)
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        assert refused(address(one_box, ticket=text), origin=origin)["status"] == 403  # and spends nothing
    with Terminal(one_box, ticket=text, headers={"Origin": one_box.api.url}):
        pass


def test_plain_http_on_the_sockets_address(api: Api, one_box: Lease) -> None:
    missing = api.get(f"{one_box.path}/terminal/ws")
    assert missing.status_code == 401
    check_problem(missing)
    plain = api.get(f"{one_box.path}/terminal/ws?ticket=x")
    assert (plain.status_code, plain.headers["Upgrade"]) == (426, "websocket")


def test_check_19_of_fifty_racing_uses_one_wins(one_box: Lease) -> None:
    text = ticket(one_box)

    def use(_: int) -> int:
        try:
            with Terminal(one_box, ticket=text):
                return 101
        except InvalidStatus as refusal:
            return refusal.response.status_code

    assert sorted(at_once(50, use)) == [101] + [401] * 49
