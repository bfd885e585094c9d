"""From inside, as a tenant, against the program that serves a sandbox: each attack is refused, or ends that sandbox and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import pytest
from harness.client import Api, Lease
from harness.limits import RUNTIMES
from harness.server import Server, deployment
from harness.waiting import at_once, until

from . import inside

#: gVisor lists the numbers of everybody's descriptors. It tells nothing more, and opens none.
HARMLESS = {"proc-fdinfo"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A deployment whose limits are soon reached. At its end nothing may be left of any sandbox, and the log has no complaint."""
    with deployment(
        tmp_path_factory.mktemp("small") / "home",
        SANDBOXHUB_RUNTIMES=",".join(RUNTIMES),
        SANDBOXHUB_MEMORY="128MiB",
        SANDBOXHUB_PIDS="64",
        SANDBOXHUB_DISK="16MiB",
        SANDBOXHUB_EXEC_TIMEOUT="60",
    ) as running:
        yield running


@pytest.fixture
def lease(small: Server, runtime: str) -> Iterator[Callable[[], Lease]]:
    taken: list[Lease] = []

    def take() -> Lease:
        taken.append(small.api("attacker").create(runtime=runtime))
        return taken[-1]

    yield take
    for one in taken:
        assert one.api.delete(one.path).status_code in (204, 404)
    until(lambda: not [trace for trace in small.traces.of_sandboxes() for one in taken if one.container in trace])


@pytest.fixture
def victim(lease: Callable[[], Lease]) -> Lease:
    return lease()


@pytest.fixture
def neighbour(small: Server, runtime: str) -> Iterator[Lease]:
    """Another org's sandbox with a command that runs all the while; it must not notice anything."""
    api: Api = small.api("neighbour")
    lease = api.create(runtime=runtime)
    lease.write("kept", b"kept")
    lease.sh("sleep 333 >/dev/null 2>&1 & echo $! >/tmp/pid")
    yield lease
    assert lease.sh("kill -0 $(cat /tmp/pid) && cat kept") == "kept"
    lease.end()


def serves(box: Lease) -> None:
    """The same guest as before still does all of its work."""
    token = secrets.token_hex(4)
    assert box.sh(f"echo {token}") == f"{token}\n"
    box.write("serves", token.encode())
    assert box.read("serves") == token.encode()


def failed(box: Lease) -> str:
    """Wait for the sandbox to be told dead; the reason."""
    body = until(lambda: (found := box.status())["status"] == "error" and found, seconds=120)
    assert body["error"] and "/" not in body["error"], body
    return str(body["error"])


def test_nothing_reaches_the_first_process(victim: Lease, neighbour: Lease) -> None:
    result = victim.exec("python3", "-c", inside.ATTACK_FIRST_PROCESS)
    assert (result["exitCode"], result["stderr"]) == (0, ""), result["stderr"]
    lines = dict(line.split(" ", 1) for line in result["stdout"].splitlines())
    assert len(lines) > 60
    assert {name for name, answer in lines.items() if answer == "ok"} <= HARMLESS, lines
    serves(victim)


def test_its_socket_hears_nobody(victim: Lease) -> None:
    assert victim.exec("python3", "-c", inside.SPEAK)["stdout"] == "came 0\n"
    serves(victim)


def test_nobody_takes_its_name(victim: Lease) -> None:
    """The socket is the guest's as long as it lives; a reconnect never meets an impostor."""
    bind = "import socket; socket.socket(socket.AF_UNIX).bind('\\0guest')"
    assert "Address already in use" in victim.exec("python3", "-c", bind)["stderr"]


def test_connections_that_say_nothing(victim: Lease, neighbour: Lease, small: Server) -> None:
    victim.exec("sh", "-c", 'python3 -c "$1" >held & until grep -q holding held; do sleep 0.1; done', "sh", inside.CONNECT_3000)
    serves(victim)
    victim.sh("touch enough")
    serves(victim)


def test_forged_frames(victim: Lease) -> None:
    """No descriptor of the guest's, nor of a command of another connection, takes a byte that is not its own."""
    victim.exec("python3", "-c", inside.FORGE)
    serves(victim)


def test_a_kill_of_everything(victim: Lease, neighbour: Lease) -> None:
    """The guest lives, and ends what stands still."""
    for number in (9, 19):
        attack = f"import os, subprocess; subprocess.Popen(['sleep', '77']); os.kill(-1, {number})"
        response = victim.api.post(f"{victim.path}/exec", {"argv": ["python3", "-c", attack], "timeoutSec": 5})
        assert response.status_code in (200, 504), response.text  # 504: gVisor stops also who asked for it
        serves(victim)
    victim.api.post("/sandbox/stop", {"id": victim.id})
    assert victim.sh("ps -e -o comm= | grep -c sleep || true") == "0\n"


def test_a_fork_bomb(victim: Lease, neighbour: Lease) -> None:
    """At most 64 processes: new commands are refused while it runs, others are served, and stop ends it."""

    def work(number: int) -> int:
        if number == 0:
            bomb = "b() { b | b & b; }; b 2>/dev/null; sleep 20"
            return victim.api.post(f"{victim.path}/exec", {"argv": ["bash", "-c", bomb], "timeoutSec": 5}).status_code
        for _ in range(5):
            assert neighbour.sh("echo served") == "served\n"
        return victim.api.post(f"{victim.path}/exec", {"argv": ["true"], "timeoutSec": 20}).status_code

    for status in at_once(2, work):
        assert status in (200, 502, 504)
    victim.api.post("/sandbox/stop", {"id": victim.id})
    if victim.status()["status"] == "running":
        until(lambda: victim.exec("true")["exitCode"] == 0)
        serves(victim)
    else:
        assert failed(victim)


def test_a_memory_hog(victim: Lease, neighbour: Lease, runtime: str) -> None:
    """It dies, under gVisor with its sandbox, and both are told."""
    hog = "x = []\nwhile True: x.append(bytearray(b'x') * (8 << 20))"
    response = victim.api.post(f"{victim.path}/exec", {"argv": ["python3", "-c", hog], "timeoutSec": 50})
    if response.status_code == 200:
        assert response.json()["exitCode"] == 137, response.text
        serves(victim)
    else:
        assert response.status_code == 502, response.text
        assert "memory" in failed(victim)
    assert runtime == "gvisor" or victim.status()["status"] == "running"


def test_everything_is_full(victim: Lease, neighbour: Lease) -> None:
    """Disk, inodes and all memory file systems: the guest still runs commands and reads files, and what is freed can be used again."""
    victim.write("small", b"kept")
    for place in ("/tmp", "/dev/shm", "/run", "."):
        fill = "head -c 1G /dev/zero >$0/full 2>&1; i=0; while mkdir $0/$((i += 1)) 2>/dev/null && [ $i -lt 3000 ]; do :; done"
        result = victim.exec("sh", "-c", fill, place)
        assert result["exitCode"] == 0 or result["signal"], result
    assert victim.sh("echo served") == "served\n"
    assert victim.read("small") == b"kept"
    victim.api.refuses(400, "write_failed", "POST", victim.file("more"), data=b"x" * (1 << 20))
    victim.sh("rm -rf /tmp/* /dev/shm/* /run/* full [0-9]*")
    serves(victim)


def test_descriptors_and_locks_run_out(victim: Lease) -> None:
    """A tenant's own limits are not the guest's."""
    take = "import os\nheld = []\ntry:\n  while True: held.append(os.open('/dev/null', 0))\nexcept OSError as e: print(e.errno)"
    assert victim.exec("python3", "-c", take)["stdout"] == "24\n"
    victim.sh("for i in $(seq 20); do (exec 9>lock; flock 9; sleep 30) & done >/dev/null 2>&1")
    serves(victim)


def test_a_command_cannot_outlive_its_sandbox(small: Server, lease: Callable[[], Lease]) -> None:
    """One that has shed everything by which the guest knows it is still gone with the lease."""
    evader = lease()
    evader.sh("ulimit -m 1000; (setsid sh -c 'trap \"\" TERM HUP; exec -a hostile-evader sleep 4321' >/dev/null 2>&1 &) ; true")
    evader.end()
    until(lambda: not [trace for trace in small.traces.of_sandboxes() if evader.container in trace])
    until(lambda: not [line for line in small.traces.processes().values() if "hostile-evader" in line])
