"""A finished command as an answer, or as the problem that tells how it ended."""

from __future__ import annotations

import base64
from typing import Any

from sandboxes import errors
from sandboxes.guest.commands import Outcome, Result
from sandboxes.lifecycle import blind
from sandboxes.lifecycle.work import OUTPUT_LIMIT

MARKER = "\n[truncated at 1MiB]"


def answer(result: Result, *, timeout: int, encoding: str, secrets: list[bytes]) -> dict[str, Any]:
    """The members of ExecResult. Raises ``TimedOut``, ``Stopped`` or ``Draining`` with the output so far as members of the problem."""
    members: dict[str, Any] = {}
    for name, output, cut in (("stdout", result.stdout, result.stdout_truncated), ("stderr", result.stderr, result.stderr_truncated)):
        output = blind.redact(output, secrets)
        cut = cut or len(output) > OUTPUT_LIMIT
        members[name] = _text(output[:OUTPUT_LIMIT], cut, encoding)
        members[f"{name}Truncated"] = cut
    members["timeoutSec"] = timeout
    if encoding == "base64":
        members["encoding"] = encoding
    match result.outcome:
        case Outcome.TIMED_OUT:
            raise errors.TimedOut(f"the command was ended after {timeout} s, with all that it had started", members=members)
        case Outcome.STOPPED:
            raise errors.Stopped("the command was stopped", members=members)
        case Outcome.INTERRUPTED:
            raise errors.Draining("the server is going away; the command was ended", members=members)
    members = {"exitCode": result.code, **members}
    if result.signal is not None:
        members["signal"] = result.signal
    if result.start_error is not None:
        reason = blind.redact(result.start_error.encode(), secrets)
        members["startError"] = reason.decode()
        members["stderr"] = _text(reason + b"\n", False, encoding)
    return members


def _text(output: bytes, cut: bool, encoding: str) -> str:
    if encoding == "base64":
        return base64.b64encode(output).decode()
    return output.decode("utf-8", "replace") + (MARKER if cut else "")
