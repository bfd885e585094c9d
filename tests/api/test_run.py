"""POST /v1/sandbox/run: as exec, and blind."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from harness.client import Api, Lease, check_result, decoded
from harness.limits import MIB

SECRET = "s3cret-valüe"


def run(box: Lease, **members: Any) -> dict[str, Any]:
    response = box.api.post("/sandbox/run", {"id": box.id, **members})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    check_result(result)
    return result


def test_run(box: Lease) -> None:
    result = run(box, command="cat; echo no >&2; exit 4", stdin="in", dir="/tmp", timeoutSec=9, session="unknown", events=True)
    assert (result["exitCode"], result["stdout"], result["stderr"], result["timeoutSec"]) == (4, "in", "no\n", 9)


def test_blind(box: Lease) -> None:
    result = run(box, argv=["sh", "-c", 'echo "a $S b"; echo "$S" >&2'], env={"S": SECRET}, blind=[SECRET])
    assert (result["stdout"], result["stderr"]) == ("a [redacted] b\n", "[redacted]\n")


def test_blind_spellings(box: Lease) -> None:
    key = "-----BEGIN KEY-----\n  first line of it  \nsecond line\n-----END KEY-----"
    shown = [
        key,
        "first line of it",
        "second line",
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        'with "quotes"',
        r"with \"quotes\"",
    ]
    box.write("shown", "\n".join(shown).encode())
    result = run(box, argv=["cat", "shown"], blind=[key, SECRET, 'with "quotes"'])
    assert result["stdout"].split("\n") == ["[redacted]"] * 3 + ['"[redacted]"'] * 2 + ["[redacted]"] * 2


def test_short_strings_are_not_secrets(one_box: Lease) -> None:
    assert run(one_box, argv=["echo", "1234567 12345678"], blind=["1234567", "12345678", ""])["stdout"] == "1234567 [redacted]\n"


def test_the_longest_secret_goes_first(one_box: Lease) -> None:
    assert run(one_box, argv=["echo", "password-and-more"], blind=["password", "password-and-more"])["stdout"] == "[redacted]\n"


@pytest.mark.parametrize("inside", range(1, len(SECRET.encode()) + 1, 3))
def test_a_secret_across_the_cut_does_not_show(box: Lease, inside: int) -> None:
    """``inside`` bytes of it lie before the cut."""
    box.write("long", b"x" * (MIB - inside) + SECRET.encode() + b"y" * 100)
    result = run(box, argv=["cat", "long"], blind=[SECRET], encoding="base64")
    kept = decoded(result["stdout"])
    assert kept == (b"x" * (MIB - inside) + b"[redacted]" + b"y" * 100)[:MIB]
    assert result["stdoutTruncated"] is (len(b"[redacted]") + 100 > inside)


def test_blind_in_a_timeout(box: Lease) -> None:
    body = {"id": box.id, "command": f"echo {SECRET}; sleep 92", "timeoutSec": 1, "blind": [SECRET]}
    assert box.api.refuses(504, "timeout", "POST", "/sandbox/run", json=body)["stdout"] == "[redacted]\n"


def test_blind_in_base64(one_box: Lease) -> None:
    result = run(one_box, argv=["echo", SECRET], blind=[SECRET], encoding="base64")
    assert result["stdout"] == base64.b64encode(b"[redacted]\n").decode()


def test_a_start_error_does_not_show_a_secret(one_box: Lease) -> None:
    result = run(one_box, argv=["/no/such-secret-program"], blind=["such-secret-program"])
    assert result["exitCode"] == 127
    assert "such-secret-program" not in json.dumps(result)


def test_run_needs_an_id(api: Api) -> None:
    for body in ({"command": "true"}, {"command": "true", "id": ""}, {"command": "true", "id": None}):
        api.refuses(404, "not_found", "POST", "/sandbox/run", json=body)
