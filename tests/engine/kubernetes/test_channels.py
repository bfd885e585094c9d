"""What the status channel says, and what a broken one may say."""

from __future__ import annotations

import json

import pytest

from sandboxes.engine.kubernetes.channels import Status, parse_status


def status(**members) -> bytes:
    return json.dumps(members).encode()


def test_success():
    assert parse_status(status(status="Success")) == Status(0, "")


def test_the_exit_code_is_searched_for():
    causes = [{"reason": "Other", "message": "x"}, {"reason": "ExitCode", "message": "42"}]
    said = status(status="Failure", reason="NonZeroExitCode", message="command terminated", details={"causes": causes})
    assert parse_status(said) == Status(42, "command terminated")


@pytest.mark.parametrize("cause", ['container not found ("sandbox")', "pod does not exist"])
def test_not_up_yet(cause: str):
    message = f"Internal error occurred: unable to upgrade connection: {cause}"
    found = parse_status(status(status="Failure", reason="InternalError", message=message))
    assert found.not_up_yet
    assert not found.node_away


def test_a_node_that_is_away():
    message = 'Internal error occurred: error sending request: Post "https://192.0.2.1:10250/exec": dial tcp: connect: connection refused'
    assert parse_status(status(status="Failure", reason="InternalError", message=message)).node_away


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"3",
        status(status="Failure", reason="NonZeroExitCode"),
        status(status="Failure", reason="NonZeroExitCode", details={"causes": [{"reason": "ExitCode", "message": "x"}]}),
        status(status="Failure", reason="NonZeroExitCode", details=None),
    ],
)
def test_what_is_not_understood_is_unknown(payload: bytes):
    assert parse_status(payload).code is None
