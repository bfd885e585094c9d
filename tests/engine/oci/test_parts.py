"""The pieces of the oci engine that need no runtime."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.engine.base import Spec
from sandboxes.engine.oci import mounts, process, procfs
from sandboxes.engine.oci.bundle import Bundle, spec_record
from sandboxes.engine.oci.cgroups import Cgroups
from sandboxes.engine.oci.config import ANY_NAME, OciConfig, Paths, check_name
from sandboxes.engine.oci.locks import Locks
from sandboxes.engine.oci.rootfs import RootFilesystems
from sandboxes.engine.oci.runtime import RuntimeProgram, last_error
from sandboxes.engine.oci.watch import Watch
from sandboxes.engine.tasks import finish
from sandboxes.errors import EngineError

NAME = "m-0123456789abcdef01234567-0001"


@pytest.mark.parametrize(
    "name",
    ["", "m", NAME[:-1], NAME + "0", NAME + "\n", NAME.upper(), "../" + NAME, "--help", "x" + NAME[1:], NAME.replace("0001", "-001")],
)
def test_only_names_of_one_form_reach_a_runtime(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match="not the name"):
        check_name(name)
    with pytest.raises(ValueError, match="not the name"):
        RuntimeProgram("gvisor", Path("runsc"), tmp_path, rootless=False).connect_command(name)


def test_config_is_checked():
    for instance in ("", "abc", "ABCDEF012345", "../abcdef0123"):
        with pytest.raises(ValueError, match="instance"):
            OciConfig(instance, Path("/h"), Path("/g"), {"runc": Path("runc")})
    for runtimes in ({}, {"docker": Path("docker")}):
        with pytest.raises(ValueError, match="runtimes"):
            OciConfig("abcdef012345", Path("/h"), Path("/g"), runtimes)


def test_runtime_words():
    assert last_error("") == "it said nothing"
    assert last_error("creating container: cannot open x\nUsage: runsc\n") == "creating container: cannot open x"
    assert last_error('time="t" level=error msg="runc create failed: \\"x\\" denied"\n') == 'runc create failed: "x" denied'
    assert last_error("one\ntwo\n") == "two"


def test_mountinfo_with_blanks_in_paths():
    line = r"36 35 98:0 /a /mnt\040two/x\134y rw,noatime shared:1 - ext4 /dev/my\040disk rw,errors=continue"
    assert mounts.parse(line) == [mounts.Mount("/mnt two/x\\y", "ext4", "/dev/my disk")]


def test_record_survives_and_half_a_one_is_none(tmp_path: Path):
    bundle = Bundle(tmp_path / NAME)
    assert bundle.read() is None
    record = spec_record(Spec(NAME, "runc", "host", "/work", "vol"), Path("/r"), Path("/g"))
    bundle.make(record, {})
    assert bundle.read() == record
    who = procfs.Identity(1, 2, "boot")
    assert bundle.set_process(record, who).process == who
    assert Bundle(tmp_path / NAME).read() == bundle.set_process(record, who)
    (bundle.path / "meta.json").write_text('{"runtime": "runc"')
    assert bundle.read() is None
    bundle.remove()
    bundle.remove()
    assert bundle.tail() == ""


def test_cgroups_of_both_versions(tmp_path: Path):
    """On a plain directory tree: what the kernel would keep there."""
    one, two = tmp_path / "memory", tmp_path / "unified"
    cgroups = Cgroups("abcdef012345", [one, two])
    assert cgroups.names() == set()
    assert cgroups.remove(NAME)
    for top in (one, two):
        (top / "sandboxhub-abcdef012345" / NAME / "child").mkdir(parents=True)
        (top / "sandboxhub-ffffffffffff" / NAME).mkdir(parents=True)
    mine = one / "sandboxhub-abcdef012345" / NAME
    (mine / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (mine / "child" / "cgroup.procs").write_text("12\n34\n")
    (two / "sandboxhub-abcdef012345" / NAME / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n")
    (two / "sandboxhub-abcdef012345" / NAME / "pids.events").write_text("max 7\n")
    assert cgroups.names() == {NAME}
    assert cgroups.pids(NAME) == {12, 34}
    assert cgroups.pressure(NAME).oom_kills == 3
    assert cgroups.pressure(NAME).refused_forks == 7
    assert cgroups.path(NAME) == f"/sandboxhub-abcdef012345/{NAME}"


async def test_locks_exclude_tasks_and_leave_no_file(tmp_path: Path):
    locks, others = Locks(tmp_path), Locks(tmp_path)
    running = 0

    async def work(side: Locks) -> None:
        nonlocal running
        async with side.hold("a"):
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work(side) for side in (locks, others) for _ in range(20)))
    assert list(tmp_path.iterdir()) == []
    async with locks.hold("a"):
        assert others.held("a")
        async with others.hold("b"):
            pass
    assert not others.held("a")


async def test_locks_survive_a_killed_holder(tmp_path: Path):
    code = "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_CREAT); fcntl.flock(fd, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a")], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        await asyncio.to_thread(holder.stdout.readline)
        locks = Locks(tmp_path)
        assert locks.held("a")
        await locks.sweep()
        assert (tmp_path / "a").exists()
        holder.kill()
    await locks.sweep()
    assert list(tmp_path.iterdir()) == []


async def test_run_waits_for_the_process_only_and_keeps_its_words():
    done = await process.run(["sh", "-c", "sleep 100 & echo $!; echo bad >&2; exit 3"], timeout=60)
    assert done.code == 3
    os.kill(int(done.output.split()[0]), 9)
    assert "bad" in done.output
    assert (await process.run(["sleep", "100"], timeout=0.01)).code is None
    with pytest.raises(FileNotFoundError):
        await process.run(["/no/such/program"], timeout=1)


async def test_a_cancelled_run_ends_its_process():
    task = asyncio.create_task(process.run(["sleep", "98765.4"], timeout=60))
    await asyncio.wait([task], timeout=0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert procfs.find_mine(markers=["sleep", "98765.4"], log=Path("/nowhere")) == []


async def test_nothing_of_the_environment_reaches_a_runtime(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET", "do-not-leak")
    assert "do-not-leak" not in (await process.run(["env"], timeout=60)).output


async def test_finish_outlasts_a_cancellation():
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.set()

    task = asyncio.create_task(finish(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_watch_tells_the_end_of_that_very_process():
    ended: asyncio.Queue[str] = asyncio.Queue()
    watch = Watch(ended.put_nowait)
    with subprocess.Popen(["sleep", "100"]) as child:
        who = procfs.identify(child.pid)
        assert who is not None
        watch.arm("a", who)
        watch.arm("a", who)
        watch.arm("reused", procfs.Identity(child.pid, who.started + 1, who.boot))
        assert await ended.get() == "reused"
        child.kill()
        assert await ended.get() == "a"
    assert not procfs.alive(who)
    assert ended.empty()
    watch.close()


def test_kill_all_until_nothing_is_left(tmp_path: Path):
    log = tmp_path / "log"
    with log.open("w") as stderr:
        children = [subprocess.Popen(["sleep", "100"], stderr=stderr) for _ in range(3)]
    found = lambda: procfs.find_mine(markers=["nothing matches this"], log=log)  # noqa: E731
    assert set(found()) == {child.pid for child in children}
    assert procfs.kill_all(found, timeout=30) == []
    assert {child.wait() for child in children} == {-9}


def rootfs(tmp_path: Path) -> tuple[RootFilesystems, Paths, Path]:
    paths = Paths(OciConfig("abcdef012345", tmp_path, tmp_path / "guest", {"runc": Path("runc")}, tmp_path / "state"))
    paths.make()
    (tmp_path / "guest").write_bytes(b"guest")
    return RootFilesystems(paths), paths, tmp_path / "guest"


def test_host_image_holds_no_secret_of_the_host(tmp_path: Path):
    roots, _, guest = rootfs(tmp_path)
    old = os.umask(0o077)
    try:
        roots.prepare(guest, set())
    finally:
        os.umask(old)
    root = roots.find("host", ("/srv/deep/workdir",))
    assert root.usr == Path("/usr")
    etc = set(os.listdir(root.path / "etc"))
    assert {"passwd", "group", "hosts", "resolv.conf", "nsswitch.conf"} <= etc
    assert not etc & {"shadow", "gshadow", "ssh", "machine-id", "sudoers", "krb5.keytab", "pip.conf", "npmrc", "gitconfig", "environment"}
    assert "root:x:0:0" in (root.path / "etc/passwd").read_text()
    for path in (root.path, root.path / "etc", root.path / "work", root.path / "srv/deep/workdir"):
        assert path.stat().st_mode & 0o777 == 0o755
    assert not any(path.stat().st_mode & 0o022 for path in root.path.rglob("*") if not path.is_symlink() and path.name != "tmp")
    again, _, _ = rootfs(tmp_path)
    again.prepare(guest, set())
    assert again.find("host", ()).path == root.path
    roots.close()
    again.close()


def test_old_roots_go_when_nobody_uses_them(tmp_path: Path):
    roots, paths, guest = rootfs(tmp_path)
    for name in ("host-of-a-bundle", "host-unused", "host-in-use"):
        (paths.rootfs / name).mkdir()
    other, _, _ = rootfs(tmp_path)
    guest.write_bytes(b"older")
    other.prepare(guest, {str(paths.rootfs / name) for name in ("host-of-a-bundle", "host-unused", "host-in-use")})
    guest.write_bytes(b"newer")
    roots.prepare(guest, {str(paths.rootfs / "host-of-a-bundle")})
    assert {path.name for path in paths.rootfs.iterdir()} == {"host-of-a-bundle", roots.find("host", ()).path.name}
    assert len(list(paths.guests.iterdir())) == 2
    other.close()
    roots.prepare(guest, set())
    assert [path / "guest" for path in paths.guests.iterdir()] == [roots.guest / "guest"]
    roots.close()


def test_an_image_s_links_are_not_followed_on_the_host(tmp_path: Path):
    roots, paths, _ = rootfs(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    image = paths.images / "custom"
    image.mkdir(parents=True)
    (image / "mnt").symlink_to(outside)
    assert roots.names() == ("host", "custom")
    with pytest.raises(EngineError, match="no place"):
        roots.find("custom", ("/mnt/data",))
    assert list(outside.iterdir()) == []
    assert roots.find("custom", ("/work",)).path == image.resolve()
    for name in ("..", "../outside", "", "nothing"):
        with pytest.raises(EngineError, match="no such image"):
            roots.find(name, ())


def test_names_of_runtime_state_files():
    assert ANY_NAME.findall(f"{NAME}_sandbox:{NAME}.state") == [NAME, NAME]
