"""Images that lack shells and tmux; and as many terminals as a sandbox may have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.client import Lease
from harness.limits import ENGINE
from harness.server import Server
from harness.waiting import at_once, until

from .client import Terminal, address, refused, ticket

MOST = 200
POOLED = 36  #: threads that the server keeps for its next requests


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("query", [{}, {"arg": "work"}])
def test_check_21_the_best_shell_that_is_there(
    fresh: Callable[..., Lease], images: tuple[str, str], number: int, query: dict[str, str]
) -> None:
    """Without zsh it is bash, without bash sh; a name is no matter where there is no tmux. What is typed at once is not lost."""
    lease = fresh(image=images[number])
    with Terminal(lease, **query) as terminal:
        terminal.type(b"echo first '<'$SHELL'>'\n")
        shell = ("/bin/bash", "/bin/sh")[number].encode()
        assert b"first" in terminal.until(b"<%s>" % shell)
        assert terminal.plain().run("stty size").strip() == b"24 80"


@pytest.mark.skipif(ENGINE == "kubernetes", reason="its image has zsh, of which 200 take more memory than the sandbox has")
@pytest.mark.parametrize("runtime", ["gvisor"])
def test_a_sandbox_has_at_most_200_terminals(server: Server, light: Lease) -> None:
    """Each works while all are open; one more is refused; afterwards the server holds no more than before."""
    with Terminal(light) as warm:
        warm.plain()
    until(lambda: processes(light) == 0)
    files, threads = server.files(), server.threads()
    half = at_once(MOST // 2, lambda _: Terminal(light))
    terminals = half + at_once(MOST // 2, lambda _: Terminal(light))
    for number, terminal in enumerate(terminals):
        terminal.type(b"echo '<''%d>'\n" % number)
    for number, terminal in enumerate(terminals):
        terminal.until(b"<%d>" % number)
    problem = refused(address(light, ticket=ticket(light)))
    assert (problem["status"], problem["code"]) == (429, "too_many_terminals")
    terminals.pop().socket.close()
    until(lambda: processes(light) == MOST - 1)
    Terminal(light).socket.close()
    for terminal in terminals:
        terminal.socket.socket.close()
    until(lambda: processes(light) == 0)
    until(lambda: server.files() <= files)
    assert server.threads() <= threads + POOLED


def processes(lease: Lease) -> int:
    """How many shells on a terminal."""
    return int(lease.sh("n=0; for p in /proc/[0-9]*/fd/0; do case $(ls -l $p) in */dev/pts/*) n=$((n+1));; esac; done; echo $n"))
