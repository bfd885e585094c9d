"""The terminal's socket, frame by frame (contract.md section 3, and section 6 rows 43 to 46). Pure.

A text frame is typed, unless it is a control object; a binary frame is always typed. Output is binary. With ``flow=1``, which our own page
asks for, text frames carry more:

=====================================  =================================================================
``{"resize": {"cols": n, "rows": n}}``  client, always: the window's size
``{"ack": n}``                          client, flow=1: it has shown n more bytes of output
``{"ack": n}``                          server, flow=1: the terminal has taken n more bytes of what was typed
``{"upload": path}``                    server, flow=1, first: where files may be posted while this socket is open
=====================================  =================================================================

A control has less than 4096 characters. A handshake is denied with a problem document before any upgrade: 400 ``invalid_arg``, 401
``ticket_invalid``, 403 ``forbidden`` (the origin), 404 ``not_found``, 409 ``not_running``, and 429 ``too_many_terminals``: a sandbox has at
most 200 open terminals at one server process; the ticket is spent then too.
"""

from __future__ import annotations

import enum
import json
import signal
from dataclasses import dataclass
from typing import Any

SIZE_MOST = 1000
DEFAULT_SIZE = (24, 80)  #: rows, cols
_CONTROL_MOST = 4096  #: characters; nothing longer is a control
UNSHOWN_MOST = 512 * 1024  #: bytes of output that a client with flow=1 may leave unacknowledged


class Close(enum.IntEnum):
    """Close codes. All but the first two mean that reconnecting to this sandbox is pointless, or only works later."""

    EXITED = 1000
    GOING_AWAY = 1001
    LOST = 1011
    LEASE_ENDED = 4001
    STAFF = 4002
    DIED = 4003
    TOO_SLOW = 4008


@dataclass(frozen=True)
class Resize:
    rows: int
    cols: int


@dataclass(frozen=True)
class Ack:
    bytes: int


def parse(text: str, *, flow: bool) -> Resize | Ack | bytes | None:
    """What a text frame means: a control, something typed, or (None) a control that makes no sense and is dropped."""
    if len(text) < _CONTROL_MOST and text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and len(value) == 1:
            if "resize" in value:
                return _resize(value["resize"])
            if flow and "ack" in value:
                return _ack(value["ack"])
    return text.encode("utf-8", "replace")


def _resize(value: Any) -> Resize | None:
    if not isinstance(value, dict) or not (_is_integer(value.get("rows")) and _is_integer(value.get("cols"))):
        return None
    return Resize(clamp(value["rows"]), clamp(value["cols"]))


def _ack(value: Any) -> Ack | None:
    return Ack(value) if _is_integer(value) and 0 < value <= 1 << 40 else None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def clamp(value: int) -> int:
    return max(1, min(value, SIZE_MOST))


def farewell(*, code: int | None = None, signal_number: int | None = None) -> str:
    """How a shell ended, in words."""
    if signal_number is not None:
        try:
            return f"ended by signal {signal_number} ({signal.Signals(signal_number).name})"
        except ValueError:
            return f"ended by signal {signal_number}"
    return "exited" if code == 0 else f"exited with code {code}"


def message(**members: Any) -> str:
    return json.dumps(members)
