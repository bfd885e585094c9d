"""What a terminal runs: the named tmux session where there is tmux, else the best shell that the image has. One step, so that no keystroke
is lost between two.

An image may lack any of zsh, bash and tmux; ``sh`` is all that is taken for granted.
"""

from __future__ import annotations

import re

from sandboxes.guest.protocol import Command
from sandboxes.lifecycle.work import environment
from sandboxes.models import Sandbox

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")

# zsh meets a user without start-up files with a questionnaire that eats the first keys.
_CHOOSE = """\
for shell in zsh bash sh; do
  if SHELL=$(command -v "$shell"); then break; fi
done
export SHELL
if [ "$shell" = zsh ] && ! ls "$HOME"/.zshenv "$HOME"/.zprofile "$HOME"/.zshrc "$HOME"/.zlogin >/dev/null 2>&1; then
  ZDOTDIR=/tmp/.zsh-defaults
  mkdir -p "$ZDOTDIR" && : >>"$ZDOTDIR/.zshrc" && export ZDOTDIR
fi
"""
_SHELL = _CHOOSE + 'exec "$SHELL" -l\n'
# The server of a session is started apart from the terminal that asks for it: it outlives the terminal.
_SESSION = (
    _CHOOSE
    + """\
command -v tmux >/dev/null 2>&1 || exit 127
tmux -u has-session -t "=$1" 2>/dev/null || exec tmux -u new-session -d -s "$1" -x "$2" -y "$3"
"""
)
_ATTACH = 'exec tmux -u attach-session -t "=$1"\n'


def is_session_name(text: str) -> bool:
    """Whether ``text`` may name a session: 1 to 64 letters, digits, ``-`` or ``_``, not beginning with ``-``."""
    return _NAME.fullmatch(text) is not None


def login(sandbox: Sandbox) -> Command:
    """A login shell."""
    return _run(sandbox, _SHELL)


def ensure_session(sandbox: Sandbox, name: str, rows: int, cols: int) -> Command:
    """Exits with 0 when the session ``name`` is there, made or found; with anything else when this image has none."""
    return _run(sandbox, _SESSION, name, str(cols), str(rows))


def attach(sandbox: Sandbox, name: str) -> Command:
    """A client of the session ``name``. Others that are attached stay so."""
    return _run(sandbox, _ATTACH, name)


def _run(sandbox: Sandbox, script: str, *arguments: str) -> Command:
    variables = environment(sandbox) | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return Command(
        argv=[part.encode() for part in ("sh", "-c", script, "terminal", *arguments)],
        cwd=sandbox.workdir.encode(),
        env={name.encode(): value.encode() for name, value in variables.items()},
        stdin=True,
    )
