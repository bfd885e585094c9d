"""The channels of an exec over a WebSocket (``v5.channel.k8s.io`` and ``v4``), as far as bytes go. Pure.

A message is one byte that names the channel, and its payload. Only the status channel tells how a command ended: close codes mean nothing.
Version 5 differs by a signal that closes stdin. Nothing here needs it: what is read inside has a known length, or lasts as long as the
connection.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS = 0, 1, 2, 3
#: One message to the server; larger ones are no faster.
PAYLOAD_MOST = 64 << 10

_STDIN = bytes([STDIN])
_NOT_UP_YET = ("container not found", "container not created", "pod does not exist")
_NODE_AWAY = ("error sending request", "error dialing backend")


def to_stdin(data: bytes | bytearray | memoryview) -> bytes:
    return b"".join((_STDIN, data))


@dataclass(frozen=True)
class Status:
    """How an exec ended."""

    code: int | None  #: of the command; None when it never ran, or nobody knows
    message: str

    @property
    def not_up_yet(self) -> bool:
        """The container is not there: not yet, or not any more."""
        return self.code is None and any(words in self.message for words in _NOT_UP_YET)

    @property
    def node_away(self) -> bool:
        """The API server did not get through to the node, whose kubelet may just be restarting. Its message has addresses in it."""
        return self.code is None and any(words in self.message for words in _NODE_AWAY)


def parse_status(payload: bytes | memoryview) -> Status:
    """Anything that is not understood is an end of unknown outcome."""
    try:
        said = json.loads(bytes(payload))
        if said.get("status") == "Success":
            return Status(0, "")
        message = str(said.get("message", ""))
        if said.get("reason") == "NonZeroExitCode":
            for cause in said["details"]["causes"]:
                if cause.get("reason") == "ExitCode":
                    return Status(int(cause["message"]), message)
        return Status(None, message)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Status(None, "the cluster's word on how the exec ended was not understood")
