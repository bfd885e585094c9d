"""Every failure that a caller can meet, as one tree of exceptions.

Engines, the guest's client and the lifecycle raise these and nothing else at their edges; the API turns each into RFC 9457
``application/problem+json`` (``sandboxes/api/problems.py``). ``code`` is stable and part of the contract (contract.md 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class SandboxError(Exception):
    """A refusal or failure with a stable ``code`` and the HTTP ``status`` that tells it to a REST client.

    ``detail`` is one plain sentence. ``members`` are extra members of the problem document, JSON values only.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"

    def __init__(self, detail: str, *, members: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = dict(members or {})


# What the caller asked for is wrong.
class InvalidRequest(SandboxError):
    status, code = 400, "invalid_body"


class InvalidClass(InvalidRequest):
    code = "invalid_class"


class ProjectRequired(InvalidRequest):
    code = "project_required"


class ProjectNotAllowed(InvalidRequest):
    code = "project_not_allowed"


class RuntimeRefused(InvalidRequest):
    code = "runtime_refused"


class ImageRefused(InvalidRequest):
    code = "image_refused"


class CommandRequired(InvalidRequest):
    code = "command_required"


class PathRefused(InvalidRequest):
    """The path climbs out of the workdir, or names something that is not a regular file or directory."""

    code = "path_refused"


class WriteFailed(InvalidRequest):
    code = "write_failed"


class Unauthorized(SandboxError):
    status, code = 401, "unauthorized"


class Forbidden(SandboxError):
    status, code = 403, "forbidden"


class NotFound(SandboxError):
    """Unknown, or another org's: one answer for both."""

    status, code = 404, "not_found"


class NotRunning(SandboxError):
    status, code = 409, "not_running"


class ProjectBusy(SandboxError):
    status, code = 409, "project_busy"


class Conflict(SandboxError):
    status, code = 409, "conflict"


class GuestTooOld(SandboxError):
    status, code = 409, "guest_too_old"


class TooLarge(SandboxError):
    status, code = 413, "too_large"


class CeilingReached(SandboxError):
    status, code = 429, "ceiling"


# What was asked for was right, and did not work.
class ExecFailed(SandboxError):
    """The command's outcome is unknown: the connection to the sandbox was lost."""

    status, code = 502, "exec_failed"


class Stopped(SandboxError):
    status, code = 502, "stopped"


class StartFailed(SandboxError):
    status, code = 503, "start_failed"


class Draining(SandboxError):
    status, code = 503, "draining"


class TimedOut(SandboxError):
    status, code = 504, "timeout"


class EngineError(SandboxError):
    """The container runtime or cluster failed. ``detail`` is its reason in plain words; never a host path or a secret."""

    status, code = 502, "engine_failed"


class EngineUnavailable(EngineError):
    """The runtime or cluster cannot be asked now: nothing is known about its sandboxes, which may be well."""


class SandboxGone(EngineError):
    """The sandbox died or does not exist any more; ``detail`` says why as far as it is known."""


class GuestLost(SandboxError):
    """The connection to the guest ended, or the guest broke the protocol. A new connection may work."""

    status, code = 502, "exec_failed"


class FileError(SandboxError):
    """A file operation failed inside the sandbox with ``errno``."""

    status, code = 400, "file_failed"

    def __init__(self, detail: str, errno: int) -> None:
        super().__init__(detail)
        self.errno = errno
