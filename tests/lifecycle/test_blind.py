"""Redaction, also where the output was cut."""

from __future__ import annotations

import pytest

from sandboxes.lifecycle import blind

SECRETS = ["correct horse battery", "staple\nsecond line of it"]


@pytest.mark.parametrize("kept", range(len(SECRETS[0])))
def test_a_cut_secret_leaves_no_beginning(kept: int) -> None:
    forms = blind.spellings(SECRETS)
    assert blind.without_beginnings(b"before " + SECRETS[0].encode()[:kept], forms) == b"before "


def test_what_is_no_beginning_stays() -> None:
    forms = blind.spellings(SECRETS)
    assert blind.without_beginnings(b"an ordinary end", forms) == b"an ordinary end"
    assert blind.without_beginnings(b"", forms) == b""


def test_every_spelling_is_redacted() -> None:
    forms = blind.spellings(SECRETS)
    output = b'staple\nsecond line of it | "staple\\nsecond line of it" | second line of it'
    assert blind.redact(output, forms) == b'[redacted] | "[redacted]" | [redacted]'
