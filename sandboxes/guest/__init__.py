"""The client of the guest, the first process of every sandbox: commands and files inside. The wire is ``docs/guest-protocol.md``.

``Guest`` is one connection, ``run`` runs a command to its end, ``transport.open_socket_stream`` carries a connection over a socket.
"""

from sandboxes.guest.client import (
    CannotStart,
    CannotStartKind,
    Command,
    Entry,
    Exit,
    ExitKind,
    FileReader,
    Guest,
    Hello,
    Killed,
    Output,
    Process,
    Stat,
)
from sandboxes.guest.commands import Outcome, Result, RunLost, run

__all__ = [
    "CannotStart",
    "CannotStartKind",
    "Command",
    "Entry",
    "Exit",
    "ExitKind",
    "FileReader",
    "Guest",
    "Hello",
    "Killed",
    "Outcome",
    "Output",
    "Process",
    "Result",
    "RunLost",
    "Stat",
    "run",
]
