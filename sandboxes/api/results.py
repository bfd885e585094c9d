"""A finished command as an answer, or as the problem that tells how it ended."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from sandboxes import errors
from sandboxes.guest.commands import Outcome, Result, RunLost
from sandboxes.lifecycle import blind
from sandboxes.lifecycle.work import OUTPUT_LIMIT

MARKER = "\n[truncated at 1MiB]"


@dataclass(frozen=True)
class Shown:
    """How a command's outputs are shown: ``secrets`` are redacted first, and what is too long is cut afterwards."""

    timeout: int  #: seconds, as it applied
    encoding: str
    secrets: list[bytes]

    def answer(self, result: Result) -> dict[str, Any]:
        """The members of ExecResult. Raises ``TimedOut``, ``Stopped`` or ``Draining`` with the output so far as members of the problem."""
        members = self._outputs(result)
        match result.outcome:
            case Outcome.TIMED_OUT:
                raise errors.TimedOut(f"the command was ended after {self.timeout} s, with all that it had started", members=members)
            case Outcome.STOPPED:
                raise errors.Stopped("the command was stopped", members=members)
            case Outcome.INTERRUPTED:
                raise errors.Draining("the server is going away; the command was ended", members=members)
        members = {"exitCode": result.code, **members}
        if result.signal is not None:
            members["signal"] = result.signal
        if result.start_error is not None:
            reason = blind.redact(result.start_error.encode(), self.secrets)
            members["startError"] = reason.decode("utf-8", "replace")
            members["stderr"] = self._text(reason + b"\n", False)
        return members

    def unknown(self, lost: RunLost) -> errors.ExecFailed:
        """The problem of a command whose outcome nobody will know."""
        return errors.ExecFailed(f"the command's outcome is unknown: {lost.detail}", members=self._outputs(lost))

    def _outputs(self, result: Result | RunLost) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for name, output, cut in (
            ("stdout", result.stdout, result.stdout_truncated),
            ("stderr", result.stderr, result.stderr_truncated),
        ):
            output = blind.redact(output, self.secrets)
            if cut:
                output = blind.without_beginnings(output, self.secrets)
            cut = cut or len(output) > OUTPUT_LIMIT
            members[name] = self._text(output[:OUTPUT_LIMIT], cut)
            members[f"{name}Truncated"] = cut
        members["timeoutSec"] = self.timeout
        if self.encoding == "base64":
            members["encoding"] = self.encoding
        return members

    def _text(self, output: bytes, cut: bool) -> str:
        if self.encoding == "base64":
            return base64.b64encode(output).decode()
        return output.decode("utf-8", "replace") + (MARKER if cut else "")
