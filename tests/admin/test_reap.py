"""``reap``: who may, what it asks, what it does, what it tells and what it records."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.messages import get_messages
from django.http import HttpResponse
from django.test import Client
from harness.server import Server
from harness.waiting import until

from admin.browser import Browser
from sandboxes.lifecycle import current
from sandboxes.models import Event, Sandbox, State

LIST = "/admin/sandboxes/sandbox/"


def ask(client: Client, *leases: Sandbox, **fields: str) -> HttpResponse:
    return client.post(LIST, {"action": "reap", "_selected_action": [lease.pk for lease in leases], **fields})  # type: ignore[return-value]


def told(response: HttpResponse) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]  # type: ignore[attr-defined]


def test_it_asks_first(root: Client, lease: Callable[..., Sandbox]) -> None:
    dev, gone, other = lease(project="site"), lease(State.ENDED), lease()
    response = ask(root, dev, gone)
    shown = response.content.decode()
    assert response.status_code == 200
    assert "Reap 1 lease?" in shown
    assert dev.pk in shown and "acme/site" in shown and "m-acme-site" in shown
    assert gone.pk not in shown and other.pk not in shown
    assert not Sandbox.objects.filter(state=State.ENDING).exists()


def test_it_ends_the_selected_and_records_who_did_it(root: Client, lease: Callable[..., Sandbox]) -> None:
    some = [lease(), lease(State.PENDING), lease(State.ERROR, project="site")]
    other = lease()
    response = ask(root, *some, confirmed="Reap")
    assert response.status_code == 302
    # Another host runs them: this one may only say that they must end.
    assert "3 leases still ending" in told(response)[0]
    for sandbox in some:
        sandbox.refresh_from_db()
        assert (sandbox.state, sandbox.end_reason, sandbox.purge) == (State.ENDING, "reaped by staff", False)
        event = Event.objects.get(sandbox=sandbox.pk)
        assert (event.kind, event.actor, event.reason) == ("ending", "staff root", "reaped by staff")
        entry = LogEntry.objects.get(object_id=sandbox.pk)
        assert (entry.user.get_username(), entry.change_message) == ("root", "Reaped.")
        assert "Reaped." in root.get(f"{LIST}{quote(sandbox.pk)}/history/").content.decode()
    other.refresh_from_db()
    assert other.state == State.RUNNING


def test_what_ends_already_is_told_apart(root: Client, lease: Callable[..., Sandbox]) -> None:
    ending, ended, live = lease(State.ENDING), lease(State.ENDED), lease()
    texts = " ".join(told(ask(root, ending, ended, live, confirmed="Reap")))
    assert f"1 lease still ending: {live.pk}" in texts
    assert f"1 lease ended by somebody else before: {ending.pk}" in texts
    assert ended.pk not in texts
    assert [entry.object_id for entry in LogEntry.objects.all()] == [live.pk]
    assert "Nothing to reap" in " ".join(told(ask(root, ended, confirmed="Reap")))


def test_all_of_a_filtered_list_can_be_selected(root: Client, lease: Callable[..., Sandbox]) -> None:
    lease()
    response = root.post(f"{LIST}?life=live&org=acme", {"action": "reap", "select_across": "1", "_selected_action": lease().pk})
    assert "Reap 2 leases?" in response.content.decode()


def test_only_so_many_at_once(root: Client, lease: Callable[..., Sandbox], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.admin.leases.REAP_MOST", 2)
    response = ask(root, lease(), lease(), lease(), confirmed="Reap")
    assert told(response) == ["At most 2 leases can be reaped at once; select fewer."]
    assert not Sandbox.objects.filter(state=State.ENDING).exists()


def test_without_the_permission_it_is_not_there(staff: Callable[..., Client], lease: Callable[..., Sandbox]) -> None:
    sandbox = lease()
    sam = staff("view_sandbox")
    for path in (LIST, f"{LIST}{quote(sandbox.pk)}/change/"):
        assert 'value="reap"' not in sam.get(path).content.decode()
    ask(sam, sandbox, confirmed="Reap")
    sandbox.refresh_from_db()
    assert sandbox.state == State.RUNNING
    assert not Event.objects.exists()


def test_volumes_go_only_by_order_of_who_may_delete_them(staff: Callable[..., Client], lease: Callable[..., Sandbox]) -> None:
    sandbox = lease(project="site")
    sam = staff("view_sandbox", "reap_sandbox")
    for path in (LIST, f"{LIST}{quote(sandbox.pk)}/change/"):
        assert 'value="reap"' in sam.get(path).content.decode()
    assert 'name="option"' not in ask(sam, sandbox).content.decode()
    ask(sam, sandbox, confirmed="Reap", option="on")
    sandbox.refresh_from_db()
    assert (sandbox.state, sandbox.purge) == (State.ENDING, False)


def test_a_volume_goes_too_when_asked(staff: Callable[..., Client], lease: Callable[..., Sandbox]) -> None:
    sandbox, plain, ending = lease(project="site"), lease(), lease(State.ENDING, project="shop")
    sam = staff("view_sandbox", "reap_sandbox", "delete_volume")
    assert 'name="option"' in ask(sam, sandbox).content.decode()
    assert 'name="option"' not in ask(sam, plain).content.decode()
    ask(sam, sandbox, plain, ending, confirmed="Reap", option="on")
    for row in (sandbox, ending):
        row.refresh_from_db()
        assert row.purge
        assert LogEntry.objects.get(object_id=row.pk).change_message == "Reaped, with its volume."
    assert LogEntry.objects.get(object_id=plain.pk).change_message == "Reaped."


@pytest.mark.django_db(transaction=True)
def test_what_could_not_be_ended_is_told_with_the_reason(
    root: Client, lease: Callable[..., Sandbox], settings: Any, tmp_path: Path
) -> None:
    settings.SANDBOXHUB_HOME = tmp_path
    settings.SANDBOXHUB_RUNSC = Path("/nonexistent/runsc")
    here, elsewhere = lease(host=settings.SANDBOXHUB_HOST), lease()
    try:
        texts = told(ask(root, here, elsewhere, confirmed="Reap"))
    finally:
        current.close()
    assert f"1 lease still ending: {elsewhere.pk}." in texts
    assert "1 lease could not be ended yet; it is tried again." in texts
    assert [text for text in texts if text.startswith(f"{here.pk}: ") and len(text) > len(here.pk) + 2]
    assert set(Sandbox.objects.values_list("state", flat=True)) == {State.ENDING}
    assert {entry.object_id for entry in LogEntry.objects.all()} == {here.pk, elsewhere.pk}


def test_a_long_name_of_staff_fits(root: Client, lease: Callable[..., Sandbox], django_user_model: type) -> None:
    user = django_user_model.objects.create_superuser("x" * 150)  # type: ignore[attr-defined]
    client = Client()
    client.force_login(user)
    sandbox = lease()
    ask(client, sandbox, confirmed="Reap")
    assert Event.objects.get(sandbox=sandbox.pk).actor == f"staff {'x' * 74}"


def test_reaped_sandboxes_are_gone(server: Server) -> None:
    """The whole way: real sandboxes of two runtimes, one with a volume, leased over the API and ended in the admin of the live server."""
    api = server.api("reaped")
    leases = [api.create(runtime="runc"), api.create(runtime="gvisor"), api.create(runtime="runc", **{"class": "dev", "project": "site"})]
    volume = leases[2].body["volume"]
    assert api.get(f"/volumes/{volume}").status_code == 200
    browser = Browser(server)
    listed = browser.get(f"{LIST}?org=reaped")
    assert all(lease.id in listed for lease in leases)
    selected = [lease.id for lease in leases]
    asked = browser.post(LIST, listed, action="reap", _selected_action=selected)
    done = browser.post(LIST, asked.text, action="reap", _selected_action=selected, option="on", confirmed="Reap").text
    for lease in leases:
        api.refuses(404, "not_found", "GET", lease.path)
    assert "3 leases ended." in done or "still ending" in done  # the page waits, but not for ever
    until(lambda: set(re.findall(r"m_[0-9a-f]{24}", browser.get(f"{LIST}?life=ended&org=reaped"))) >= set(selected))
    for pk in selected:
        story = browser.get(f"{LIST}{quote(pk)}/change/")
        assert "staff reaper-of-tests" in story and "reaped by staff" in story
    assert not any(lease.container in trace for lease in leases for trace in server.traces.of_sandboxes())
    api.refuses(404, "not_found", "GET", f"/volumes/{volume}")
