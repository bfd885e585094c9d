"""Redacts secrets from a command's output (contract.md section 4.1)."""

from __future__ import annotations

import json
from collections.abc import Sequence

REDACTED = b"[redacted]"
SHORTEST = 8  #: characters; shorter strings would redact ordinary text


def spellings(secrets: Sequence[str]) -> list[bytes]:
    """Every form in which a secret may show: itself, the lines of a multi-line one, and each as JSON escapes it; the longest first."""
    forms = set()
    for secret in secrets:
        lines = [line.strip() for line in secret.splitlines()]
        for text in (secret, *(line for line in lines if not line.startswith("-----"))):
            if len(text) >= SHORTEST:
                forms |= {text.encode(), json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    return sorted(forms, key=len, reverse=True)


def redact(output: bytes, forms: Sequence[bytes]) -> bytes:
    for form in forms:
        output = output.replace(form, REDACTED)
    return output


def without_beginnings(output: bytes, forms: Sequence[bytes]) -> bytes:
    """``output``, which was cut at its end, without the part of a secret that it may end with."""
    return output[: len(output) - max((_beginning(output, form) for form in forms), default=0)]


def _beginning(output: bytes, form: bytes) -> int:
    """How many bytes of ``form`` ``output`` ends with; all of ``form`` does not count."""
    tail = output[max(0, len(output) - len(form) + 1) :]
    at = tail.find(form[:1])
    while at >= 0 and not form.startswith(tail[at:]):
        at = tail.find(form[:1], at + 1)
    return len(tail) - at if at >= 0 else 0
