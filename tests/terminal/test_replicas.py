"""Two server processes on one home and database: tickets, the end of a lease, and the end of a server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from harness.client import Api, Lease
from harness.server import Server, free_port
from harness.waiting import until

from . import raw
from .client import Terminal, address, ticket
from .test_socket import running

REDEMPTIONS, AT_ONCE = 1000, 100
SILENCE_MOST = 4.0  #: seconds that the proxy lets pass without a byte
IDLE = 15.0  #: seconds


def seen_from(server: Server, lease: Lease) -> Lease:
    """The same lease through another server process."""
    return Lease(Api(server.url, lease.api.key), lease.id, lease.body)


def test_check_19_of_a_thousand_redemptions_at_two_servers_one_wins(second: Server, one_box: Lease) -> None:
    text = ticket(one_box)
    urls = [address(place, ticket=text) for place in (one_box, seen_from(second, one_box))]
    winners = []

    def redeem(number: int) -> int:
        opened, status, _ = raw.handshake(urls[number % 2])
        if status == 101:
            winners.append(opened)
        else:
            opened.close()
        return status

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert Counter(pool.map(redeem, range(REDEMPTIONS))) == {101: 1, 401: REDEMPTIONS - 1}
    winners[0].close()


def test_the_end_of_a_lease_closes_its_terminals_at_every_server(second: Server, fresh: Callable[..., Lease]) -> None:
    """Within 5 s, on a quiet machine."""
    lease = fresh()
    with Terminal(seen_from(second, lease)) as terminal:
        terminal.plain()
        lease.end()
        code, reason, _ = terminal.closed()
    assert (code, reason) == (4001, "the lease has ended: ended by its holder")


def test_a_server_that_stops_says_so_and_leaves_no_shell(second: Server, box: Lease) -> None:
    with Terminal(seen_from(second, box)) as idle, Terminal(seen_from(second, box)) as stuffed:
        idle.type(b"sleep 2345\n")
        stuffed.type(b"stty raw -echo; sleep 2345\n")
        until(lambda: running(box, "sleep 2345") == 2)
        for _ in range(16):
            stuffed.type(bytes(32 * 1024))
        second.stop()
        assert [terminal.closed()[0] for terminal in (idle, stuffed)] == [1001, 1001]
    assert running(box, "sleep 2345") == 0
    second.start()


def test_checks_14_and_15_a_killed_server_leaves_only_named_sessions(second: Server, box: Lease) -> None:
    place = seen_from(second, box)
    with contextlib.ExitStack() as after:
        shell = after.enter_context(Terminal(place))
        shell.type(b"sleep 5432 & setsid sleep 5432 & printf '<%s>' two\n")
        shell.until(b"<two>")
        named = after.enter_context(Terminal(place, arg="kept"))
        named.type(b"clear; sleep 6543 & printf '<%s>' kept\r")
        named.until(b"<kept>")
        until(lambda: (running(box, "sleep 5432"), running(box, "sleep 6543")) == (2, 1))
        second.kill()
        until(lambda: running(box, "sleep 5432") == 0)
        until(lambda: running(box, "attach-session") == 0)
    assert running(box, "sleep 6543") == 1
    second.start()
    with Terminal(place, arg="kept") as again:
        again.until(b"<kept>")
        again.type(b"clear; kill %1; printf '<%s>' back\r")
        again.until(b"<back>")
    box.exec("tmux", "kill-server")


def test_check_18_pings_keep_an_idle_terminal_alive_behind_a_proxy(second: Server, one_box: Lease) -> None:
    """Scaled down: a proxy that cuts after some seconds of silence, and a terminal that is idle for longer."""
    place = seen_from(second, one_box)
    text = ticket(place)
    with impatient_proxy(second.port) as port:
        place.api.url = f"http://127.0.0.1:{port}"
        with Terminal(place, ticket=text) as terminal:
            terminal.plain()
            end = time.monotonic() + IDLE
            while (left := end - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    terminal.seen += terminal.socket.recv(timeout=left)  # type: ignore[operator]
            assert terminal.run("printf alive") == b"alive"


@contextlib.contextmanager
def impatient_proxy(target: int) -> Iterator[int]:
    """A TCP proxy to the port ``target`` that cuts a connection after SILENCE_MOST seconds without a byte either way; its own port."""
    port, loop = free_port(), asyncio.new_event_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alive: Callable[[], None]) -> None:
        while data := await reader.read(65_536):
            alive()
            writer.write(data)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", target)
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(SILENCE_MOST) as silence:

                def alive() -> None:
                    silence.reschedule(loop.time() + SILENCE_MOST)

                both = (asyncio.create_task(carry(reader, ours, alive)), asyncio.create_task(carry(theirs, writer, alive)))
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in both:
                        task.cancel()
        writer.close()
        ours.close()

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(server.close)
        until(lambda: all(task.done() for task in asyncio.all_tasks(loop)))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
