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
    longest = max((size for form in forms for size in range(1, len(form)) if output.endswith(form[:size])), default=0)
    return output[: len(output) - longest]
