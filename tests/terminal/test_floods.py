"""Clients that are slow, and programs that are."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable

import pytest
from harness.client import Lease
from harness.server import Server
from harness.waiting import until

from . import raw
from .client import Terminal, address, ticket
from .test_socket import running

MIB = 1 << 20
GROWTH_MOST = 16 * MIB
BULK = 100_000_000  #: bytes
SLOW = 50_000  #: bytes a second
SLOW_FOR = 4.0  #: seconds; the bench has the minute of check 1


def test_checks_1_and_2_a_slow_reader_gets_every_byte(server: Server, fresh: Callable[..., Lease]) -> None:
    lease, block = fresh(), os.urandom(MIB)
    digest, size = hashlib.sha256(), 0
    while size < BULK:
        digest.update(block)
        size += len(block)
    lease.write("big", (block for _ in range(size // MIB)))
    with Terminal(lease) as terminal, Terminal(lease) as beside:
        terminal.plain()
        beside.plain()
        before = peak = server.memory()
        terminal.type(b"printf '<%s>' go; cat big\n")
        terminal.until(b"<go>")
        got = hashlib.sha256(terminal.seen)
        left, began, slowly = size - len(terminal.seen), time.monotonic(), 0
        while (spent := time.monotonic() - began) < SLOW_FOR:
            if slowly > spent * SLOW:
                assert beside.run("printf alive") == b"alive"
                peak = max(peak, server.memory())
                continue
            piece = terminal.receive()
            got.update(piece)
            slowly += len(piece)
        left -= slowly
        while left:
            piece = terminal.receive()[:left]
            got.update(piece)
            left -= len(piece)
        peak = max(peak, server.memory())
    assert got.digest() == digest.digest()
    assert peak - before < GROWTH_MOST


def test_check_4_what_nobody_reads_is_not_taken(server: Server, box: Lease) -> None:
    """100 MB at a program that does not read: the server stops reading. When the client goes, the program goes too."""
    opened, status, _ = raw.handshake(address(box, ticket=ticket(box)))
    assert status == 101
    line = b"stty raw -echo; sleep 3456\n"
    opened.sendall(raw.frame(raw.BINARY, line))
    until(lambda: running(box, "sleep 3456") == 1)
    before = server.memory()
    sent = raw.send_while_taken(opened, raw.frame(raw.BINARY, bytes(64 * 1024)), BULK, patience=3)
    assert sent < 32 * MIB
    assert server.memory() - before < GROWTH_MOST
    assert running(box, "sleep 3456") == 1
    opened.close()  # with much unsent: the end of the stream never arrives
    until(lambda: running(box, "sleep 3456") == 0)


@pytest.mark.parametrize("frame", [32_768, 1_000_000])
def test_check_16_a_paste_of_2_mb(box: Lease, frame: int) -> None:
    data = os.urandom(2_000_000)
    with Terminal(box) as terminal:
        terminal.plain()
        terminal.type(b"printf '<%%s>' go; head -c %d >pasted; printf '<%%s>' taken\n" % len(data))
        terminal.until(b"<go>")
        for start in range(0, len(data), frame):
            terminal.type(data[start : start + frame])
        terminal.until(b"<taken>")
    assert hashlib.sha256(box.read("pasted")).digest() == hashlib.sha256(data).digest()
