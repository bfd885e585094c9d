"""The client and the real guest together: commands and files as a user sees them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import signal
import socket
import subprocess
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxes.errors import FileError, GuestLost, PathRefused
from sandboxes.guest import CannotStart, CannotStartKind, Command, ExitKind, Guest, Outcome, run
from sandboxes.guest.flow import TOTAL

ENVIRONMENT = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}
BULK = 100 << 20
AWKWARD = b"""
sleep 1000 &
setsid sleep 1000 &
(sleep 1000 &) &
(setsid sh -c 'sleep 1000 & sleep 1000' &) &
env -i setsid sh -c '/bin/sleep 1000' &
nohup sleep 1000 >/dev/null 2>&1 &
trap '' TERM HUP INT
echo ready
sleep 1000
"""


def command(*argv: bytes, cwd: Path, stdin: bool = False) -> Command:
    return Command(argv, os.fsencode(cwd), ENVIRONMENT, stdin)


def shell(script: bytes, *, cwd: Path) -> Command:
    return command(b"sh", b"-c", script, cwd=cwd)


async def sleepers(guest: Guest, cwd: Path) -> int:
    """Count what still sleeps in the sandbox; a zombie has no command line."""
    script = b"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c ^1000$"
    return int((await run(guest, shell(script, cwd=cwd), timeout=60)).stdout)


async def test_hello(guest: Guest) -> None:
    assert (guest.hello.version, guest.hello.pid, len(guest.hello.boot_id)) == (1, 1, 32)


async def test_run(guest: Guest, workdir: Path) -> None:
    result = await run(guest, shell(b"pwd; echo err >&2; exit 3", cwd=workdir), timeout=60)
    assert (result.outcome, result.code, result.stdout, result.stderr) == (Outcome.EXITED, 3, os.fsencode(workdir) + b"\n", b"err\n")
    assert not result.stdout_truncated and not result.stderr_truncated


async def test_arguments_and_environment_are_bytes(guest: Guest, workdir: Path) -> None:
    environment = ENVIRONMENT | {b"K": b"\xfe=\n"}
    result = await run(
        guest, Command([b"sh", b"-c", b'printf "%s|" "$K" "$@"', b"sh", b"\xff", b""], os.fsencode(workdir), environment), timeout=60
    )
    assert result.stdout == b"\xfe=\n|\xff||"


async def test_a_signal(guest: Guest, workdir: Path) -> None:
    result = await run(guest, shell(b"kill -SEGV $$", cwd=workdir), timeout=60)
    assert (result.outcome, result.signal, result.code) == (Outcome.SIGNALED, signal.SIGSEGV, 139)


async def test_commands_that_cannot_start(guest: Guest, workdir: Path) -> None:
    (workdir / "plain").write_text("text")
    for argv, cwd, kind, code in (
        ([b"no-such-program"], workdir, CannotStartKind.NOT_FOUND, 127),
        ([b"./plain"], workdir, CannotStartKind.NOT_EXECUTABLE, 126),
        ([b"true"], workdir / "missing", CannotStartKind.BAD_CWD, 126),
        ([b"true", b"x" * (200 << 10)], workdir, CannotStartKind.OTHER, 126),
    ):
        with pytest.raises(CannotStart) as caught:
            await guest.start(command(*argv, cwd=cwd))
        assert caught.value.kind is kind and caught.value.text
        result = await run(guest, command(*argv, cwd=cwd), timeout=60)
        assert (result.outcome, result.code) == (Outcome.NOT_STARTED, code) and result.start_error


async def test_stdin_and_half_close(guest: Guest, workdir: Path) -> None:
    process = await guest.start(command(b"cat", cwd=workdir, stdin=True))
    await process.write(b"first")
    piece = await process.read()
    assert piece is not None and (piece.fd, piece.data) == (1, b"first")
    process.close_stdin()
    assert await process.read() is None
    assert (await process.wait()).value == 0
    process.release()
    assert (await run(guest, command(b"cat", cwd=workdir), timeout=60)).stdout == b""


async def test_stdin_that_nobody_reads(guest: Guest, workdir: Path) -> None:
    result = await run(guest, command(b"true", cwd=workdir), stdin=bytes(4 << 20), timeout=60)
    assert (result.outcome, result.code) == (Outcome.EXITED, 0)
    process = await guest.start(command(b"sleep", b"1000", cwd=workdir, stdin=True))
    writing = asyncio.create_task(process.write(bytes(4 << 20)))
    assert (await run(guest, command(b"true", cwd=workdir), timeout=60)).code == 0
    assert (await process.kill()).left == 0
    await writing
    process.release()


async def test_bulk_out(guest: Guest, workdir: Path) -> None:
    process = await guest.start(shell(f"head -c {BULK} /dev/zero".encode(), cwd=workdir))
    size = 0
    tracemalloc.start()
    while (piece := await process.read()) is not None:
        size += len(piece.data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == BULK
    assert peak < TOTAL
    process.release()


async def test_bulk_in(guest: Guest, workdir: Path) -> None:
    process = await guest.start(command(b"sha256sum", cwd=workdir, stdin=True))
    block, digest = os.urandom(1 << 20), hashlib.sha256()
    tracemalloc.start()
    for _ in range(BULK >> 20):
        digest.update(block)
        await process.write(block)
    process.close_stdin()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    piece = await process.read()
    assert piece is not None and piece.data.startswith(digest.hexdigest().encode())
    assert peak < TOTAL
    await process.wait()
    process.release()


async def test_output_beyond_the_limit_is_drained(guest: Guest, workdir: Path) -> None:
    result = await run(guest, shell(b"head -c 5000000 /dev/zero; echo end >&2", cwd=workdir), limit=1000, timeout=60)
    assert (len(result.stdout), result.stdout_truncated, result.stderr, result.code) == (1000, True, b"end\n", 0)


async def test_a_flood_that_nobody_reads_does_not_hold_up_others(guest: Guest, workdir: Path) -> None:
    flood = await guest.start(command(b"cat", b"/dev/zero", cwd=workdir))
    for _ in range(20):
        assert (await run(guest, command(b"true", cwd=workdir), timeout=60)).code == 0
    assert (await flood.kill()).left == 0
    flood.release()


async def test_a_flood_that_is_read_does_not_starve_others(guest: Guest, workdir: Path) -> None:
    flooding = asyncio.create_task(run(guest, command(b"cat", b"/dev/zero", cwd=workdir), limit=10, timeout=600))
    for _ in range(20):
        assert (await run(guest, command(b"true", cwd=workdir), timeout=60)).code == 0
    flooding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flooding


async def test_run_does_not_wait_for_the_background(guest: Guest, workdir: Path) -> None:
    result = await run(guest, shell(b"sleep 1000 & echo done", cwd=workdir), timeout=60)
    assert (result.stdout, result.code) == (b"done\n", 0)
    async with asyncio.timeout(60):
        while await sleepers(guest, workdir) != 1:  # the shell did not wait until it slept
            pass


async def test_output_of_the_background_comes_after_exit(guest: Guest, workdir: Path) -> None:
    os.mkfifo(workdir / "gate")
    process = await guest.start(shell(b"(read line <gate; echo late $line) & echo now", cwd=workdir))
    piece = await process.read()
    assert piece is not None and piece.data == b"now\n"
    assert await process.read(until_exit=True) is None
    assert (await run(guest, shell(b"echo indeed >gate", cwd=workdir), timeout=60)).code == 0
    piece = await process.read()
    assert piece is not None and piece.data == b"late indeed\n"
    assert await process.read() is None
    process.release()


async def test_a_deadline_kills_awkward_children(guest: Guest, workdir: Path) -> None:
    result = await run(guest, shell(AWKWARD, cwd=workdir), timeout=0.5)
    assert (result.outcome, result.left) == (Outcome.TIMED_OUT, 0)
    assert await sleepers(guest, workdir) == 0


async def test_kill_after_exit_takes_what_was_left_behind(guest: Guest, workdir: Path) -> None:
    process = await guest.start(shell(b"setsid sleep 1000 >/dev/null 2>&1 & exit 0", cwd=workdir))
    await process.wait()
    killed = await process.kill()
    assert (killed.killed, killed.left) == (1, 0)
    process.release()
    assert await sleepers(guest, workdir) == 0


async def test_a_signal_to_the_main_process_only(guest: Guest, workdir: Path) -> None:
    process = await guest.start(shell(b"trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.1; done", cwd=workdir))
    await process.read()
    await process.kill(signal.SIGTERM, tree=False)
    assert (await process.wait()).value == 5
    process.release()


async def test_cancelling_a_run_kills_its_children(guest: Guest, workdir: Path) -> None:
    os.mkfifo(workdir / "gate")
    running = asyncio.create_task(run(guest, shell(AWKWARD.replace(b"echo ready", b"echo ready >gate"), cwd=workdir), timeout=600))
    await run(guest, shell(b"cat gate", cwd=workdir), timeout=60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await sleepers(guest, workdir) == 0


async def test_stop_all(guest: Guest, workdir: Path) -> None:
    running = []
    for number in (b"1", b"2", b"3"):
        os.mkfifo(workdir / os.fsdecode(number))
        running.append(asyncio.create_task(run(guest, shell(b"echo ready >" + number + b"; sleep 1000", cwd=workdir), timeout=600)))
        await run(guest, command(b"cat", number, cwd=workdir), timeout=60)
    assert await guest.stop_all() == 3
    for result in await asyncio.gather(*running):
        assert result.outcome is Outcome.STOPPED
    assert await sleepers(guest, workdir) == 0
    assert (await run(guest, command(b"true", cwd=workdir), timeout=60)).code == 0


async def test_a_hundred_at_once(guest: Guest, workdir: Path) -> None:
    results = await asyncio.gather(*(run(guest, shell(b"cat", cwd=workdir), stdin=b"%d" % i * 2000, timeout=120) for i in range(100)))
    assert [result.stdout for result in results] == [b"%d" % i * 2000 for i in range(100)]


async def test_more_commands_than_streams(guest: Guest, workdir: Path) -> None:
    results = await asyncio.gather(*(run(guest, command(b"true", cwd=workdir), timeout=300) for _ in range(600)))
    assert {result.code for result in results} == {0}


async def test_many_kills_and_stops_at_once_do_no_harm(guest: Guest, workdir: Path) -> None:
    process = await guest.start(command(b"sleep", b"1000", cwd=workdir))
    await asyncio.gather(*(process.kill(signal.SIGCONT) for _ in range(30)), *(guest.stop_all() for _ in range(40)))
    assert (await process.wait()).kind is ExitKind.STOPPED
    process.release()
    assert (await run(guest, command(b"true", cwd=workdir), timeout=60)).code == 0


async def test_ping(guest: Guest) -> None:
    await guest.ping()


async def test_the_end_of_the_guest_wakes_everyone(
    guest_process: tuple[subprocess.Popen[bytes], socket.socket], guest: Guest, workdir: Path
) -> None:
    running = asyncio.create_task(run(guest, shell(b"echo out; sleep 1000", cwd=workdir), timeout=600))
    process = await guest.start(command(b"sleep", b"1000", cwd=workdir))
    guest_process[0].kill()
    with pytest.raises(GuestLost):
        await running
    with pytest.raises(GuestLost):
        await process.wait()
    assert await guest.lost


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def content(guest: Guest, path: bytes) -> bytes:
    reader = await guest.read(path)
    try:
        return b"".join([chunk async for chunk in reader])
    finally:
        await reader.aclose()


async def test_write_and_read(guest: Guest, workdir: Path) -> None:
    stat = await guest.write(b"new/dir/file", pieces(b"hello ", b"", b"world"), mode=0o640)
    assert stat.size == 11 and stat.is_file
    assert await content(guest, os.fsencode(workdir / "new/dir/file")) == b"hello world"
    assert (await guest.stat(b"new/dir/file")) == stat
    await guest.write(b"new/dir/file", pieces())
    stat = await guest.stat(b"new/dir/file")
    assert (stat.size, stat.mode & 0o777) == (0, 0o640)
    assert await content(guest, b"new/dir/file") == b""


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", b" ", b"-rf", "ünï".encode(), b"\x1b[31m", b"n" * 255])
async def test_names_are_bytes(guest: Guest, name: bytes) -> None:
    await guest.mkdir(b"d")
    await guest.write(b"d/" + name, pieces(b"x"))
    assert [entry.name for entry in await guest.list(b"d")] == [name]
    assert await content(guest, b"d/" + name) == b"x"
    await guest.rename(b"d/" + name, b"d/other")
    await guest.remove(b"d/other")
    assert await guest.list(b"d") == []


async def test_bulk_file(guest: Guest, workdir: Path) -> None:
    block = os.urandom(1 << 20)

    async def source() -> AsyncIterator[bytes]:
        for _ in range(BULK >> 20):
            yield block

    tracemalloc.start()
    assert (await guest.write(b"bulk", source())).size == BULK
    digest, size = hashlib.sha256(), 0
    reader = await guest.read(b"bulk")
    assert reader.stat.size == BULK
    async for chunk in reader:
        digest.update(chunk)
        size += len(chunk)
    await reader.aclose()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == BULK and digest.digest() == hashlib.sha256(block * (BULK >> 20)).digest()
    assert peak < TOTAL


async def test_listing_of_many(guest: Guest, workdir: Path) -> None:
    names = {f"{i:05}-{'x' * 200}".encode() for i in range(2000)}
    for name in names:
        (workdir / os.fsdecode(name)).touch()
    (workdir / ".dir").mkdir()
    (workdir / "link").symlink_to("missing")
    entries = {entry.name: entry for entry in await guest.list(b".")}
    assert set(entries) == names | {b".dir", b"link"}
    assert entries[b".dir"].stat.is_dir


async def test_readers_that_stop_early(guest: Guest, workdir: Path) -> None:
    (workdir / "big").write_bytes(bytes(4 << 20))
    for _ in range(600):
        reader = await guest.read(b"big")
        await anext(reader)
        await reader.aclose()
    assert (await guest.stat(b"big")).size == 4 << 20


async def test_failures(guest: Guest, workdir: Path) -> None:
    (workdir / "f").touch()
    (workdir / "d").mkdir()
    (workdir / "d" / "x").touch()
    os.mkfifo(workdir / "fifo")
    (workdir / "out").symlink_to("/etc")
    for call, number in (
        (guest.stat(b"missing"), errno.ENOENT),
        (guest.read(b"missing"), errno.ENOENT),
        (guest.read(b"d"), errno.EISDIR),
        (guest.list(b"f"), errno.ENOTDIR),
        (guest.remove(b"d"), errno.ENOTEMPTY),
        (guest.mkdir(b"f"), errno.ENOTDIR),
        (guest.write(b"d", pieces(b"x")), errno.EISDIR),
    ):
        with pytest.raises(FileError) as caught:
            await call
        assert caught.value.errno == number and caught.value.detail
    for call in (guest.read(b"fifo"), guest.read(b"out/passwd"), guest.stat(b"../x"), guest.write(b"out/x", pieces()), guest.list(b"/etc")):
        with pytest.raises(PathRefused):
            await call
    await guest.remove(b"d", recursive=True)
    assert not (workdir / "d").exists()


async def test_a_write_that_fails_or_is_cancelled_leaves_nothing(guest: Guest, workdir: Path) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield bytes(200_000)
        raise ConnectionError("the client went away")

    reached = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield bytes(200_000)
        reached.set()
        await asyncio.Event().wait()

    (workdir / "f").write_text("old")
    with pytest.raises(ConnectionError):
        await guest.write(b"f", failing())
    writing = asyncio.create_task(guest.write(b"f", stalling()))
    await reached.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    while len(await guest.list(b".")) > 1:  # the guest undoes it soon
        pass
    assert (workdir / "f").read_text() == "old"
