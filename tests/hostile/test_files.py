"""Files, links and directories that a tenant makes to get at what is not theirs, or to hold up who reads them."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.client import Lease
from harness.server import Server
from harness.waiting import at_once

SECRET = secrets.token_hex(16)

#: Exchanges a directory and a link that leads out of the workdir, for ever, with renameat2(RENAME_EXCHANGE).
SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.makedirs("race", exist_ok=True)
os.symlink(sys.argv[1], "out")
open("race/file", "w").write("inside")
print("began", flush=True)
while not os.path.exists("enough"):
    libc.renameat2(-100, b"race", -100, b"out", 2)
"""


@pytest.fixture(scope="module")
def canaries(server: Server) -> Iterator[list[Path]]:
    """Secrets on the host, beside everything that belongs to sandboxes. At the end they are as they were, and nothing is beside them."""
    places = [
        server.home,
        server.home / "oci",
        *(server.home / "oci" / server.traces.instances[0] / name for name in ("mnt", "disks")),
    ]
    found = []
    for place in places:
        canary = place / "canary"
        canary.write_text(SECRET)
        canary.chmod(0o666)
        found.append(canary)
    yield found
    for canary in found:
        assert canary.read_text() == SECRET
        assert not list(canary.parent.glob("hostile*"))
        canary.unlink()


def outside(path: Path) -> list[str]:
    """Spellings of a path of the host that a tenant may try."""
    bare = str(path).lstrip("/")
    return [str(path), "/mnt/data/" + "../" * 12 + bare, "../" * 12 + bare, "/proc/1/root/" + bare, "/proc/self/root/" + bare, "//" + bare]


def test_no_way_to_a_canary(box: Lease, canaries: list[Path]) -> None:
    """By path, by a link from inside, and by a command."""
    for canary in canaries:
        for number, spelling in enumerate(outside(canary)):
            box.exec("ln", "-sfn", spelling, f"link{number}")
            box.exec("ln", "-sfn", os.path.dirname(spelling), f"dir{number}")
            for path in (spelling, f"link{number}", f"dir{number}/canary"):
                response = box.api.get(box.file(path))
                assert response.status_code in (400, 404), (path, response.text)
                response = box.api.post(box.file(path), data=b"overwritten")
                assert response.status_code == 400, (path, response.text)
            assert box.api.get(box.file(f"dir{number}")).status_code in (400, 404)
            assert box.api.post(box.file(f"dir{number}/hostile"), data=b"x").status_code == 400
        seen = box.exec("sh", "-c", 'cat "$@"; echo x >"$1"; ls -la /proc/*/root/ /proc/*/cwd/', "sh", *outside(canary))
        assert SECRET not in seen["stdout"] + seen["stderr"]


def test_links_that_are_swapped_while_they_are_used(box: Lease, canaries: list[Path]) -> None:
    """Reads give the file inside or a refusal; writes land inside or nowhere. The other side is another directory of the sandbox."""
    box.sh(f"rm -rf /tmp/other; mkdir /tmp/other; echo {SECRET} >/tmp/other/file")
    box.sh('python3 -c "$SWAP" /tmp/other >began 2>&1 & while ! grep -q began began; do :; done', env={"SWAP": SWAP})

    def work(number: int) -> set[int]:
        statuses = set()
        for turn in range(40):
            if number % 2:
                response = box.api.get(box.file("race/file"))
                assert response.status_code in (400, 404) or response.text in ("inside", "written"), response.text
            else:
                response = box.api.post(box.file("race/file" if turn % 2 else f"race/hostile-{number}-{turn}"), data=b"written")
                assert response.status_code in (200, 400), response.text
            assert SECRET not in response.text
            statuses.add(response.status_code)
        return statuses

    try:
        statuses = set().union(*at_once(4, work))
    finally:
        box.sh("touch enough")
    assert 200 in statuses
    assert box.sh("cat /tmp/other/file; ls -A /tmp/other") == f"{SECRET}\nfile\n"
    box.api.post("/sandbox/stop", {"id": box.id})


def test_what_a_tenant_owns_is_no_way_to_what_the_guest_owns(box: Lease) -> None:
    """A hard link, a bind mount or a file handle to what the tenant may not write."""
    for line in (
        "ln /.guest/guest stolen",
        "ln /etc/passwd stolen",
        "mount --bind /etc /mnt/data",
        "mount -t tmpfs none /tmp",
        "umount -l /mnt/data",
        "unshare -Urm true",
        "chroot / true",
        "mknod disk b 7 0",
        "mknod mem c 1 1",
        "chown 0:0 .",
        "losetup -a --json | grep back-file",
        "echo 1 >/proc/sys/kernel/sysrq",
        "echo h >/proc/sysrq-trigger",
        "head -c 1 /proc/kcore | grep .",
        "ls /sys/fs/cgroup/*",
        "cat /dev/mem",
        "cat /dev/loop0",
        "nsenter -t 1 -a true",
        "su -c true",
        "echo x >/.guest/guest",
        "ls -A /root/.ssh",
    ):
        result = box.exec(command=f"{line} >/dev/null 2>&1")
        assert result["exitCode"] != 0 or (line.startswith("unshare") and box.body["runtime"] == "gvisor"), line
    assert box.read("") == b"\n"


def test_a_name_of_255_bytes_and_one_more(box: Lease) -> None:
    for name in (b"n" * 255, b"\xff" * 255, "é".encode() * 127):
        box.write(name, b"long")
        assert box.read(name) == b"long"
    listed = box.read("").split(b"\n")
    assert len(listed) == 4
    box.api.refuses(400, "path_refused", "POST", box.file(b"n" * 256), data=b"x")


def test_a_deep_tree(box: Lease) -> None:
    """Deeper than any path can say; it can be made, listed from within, and removed with the sandbox."""
    descend = "import os\nfor _ in range(1500): os.mkdir('deep-directory'); os.chdir('deep-directory')\nos.symlink('..', 'up')"
    assert box.exec("python3", "-c", descend)["exitCode"] == 0
    deep = "deep-directory/" * 200
    assert box.read(deep) == b"deep-directory\n"
    box.write(deep + "new", b"deep")
    assert box.read(deep + "new") == b"deep"
    box.api.refuses(400, "path_refused", "GET", box.file("deep-directory/" * 600))


def test_a_directory_of_a_hundred_thousand(fresh: Callable[..., Lease]) -> None:
    """It is listed, or told to be too large; never a hang, never a 500. The sandbox answers meanwhile."""
    box = fresh()
    # Links, because a small disk has not so many inodes.
    fill = "import os\nos.mkdir('many')\nfor i in range(100_000):\n  if i % 50_000 == 0: open(f'many/{i}', 'x').close(); of = i\n"
    fill += "  else: os.link(f'many/{of}', f'many/{i}')"
    assert box.exec("python3", "-c", fill)["stderr"] == ""
    assert box.read("many").count(b"\n") == 100_000
    box.sh("touch many/one-more")
    problem = box.api.get(box.file("many"))
    assert (problem.status_code, problem.json()["code"]) == (413, "too_large")
    assert box.sh("echo alive") == "alive\n"
    assert box.read("") == b"many\n"


@pytest.mark.parametrize("change", ["grow", "shrink", "replace", "remove"])
def test_a_file_that_changes_while_it_is_read(box: Lease, change: str) -> None:
    """The answer has the length that was told, or visibly breaks off; its bytes are of the file that was opened."""
    size = 24 << 20
    box.sh(f"head -c {size} /dev/zero >file")
    changes = {"grow": "yes >>file", "shrink": ": >file", "replace": "echo other >new && mv new file", "remove": "rm file"}
    connection = box.api.connection()
    connection.request("GET", f"/v1{box.file('file')}", headers={"Authorization": f"Bearer {box.api.key}"})
    response = connection.getresponse()
    assert (response.status, response.getheader("Content-Length")) == (200, str(size))
    taken = response.read(1 << 20)
    changer = threading.Thread(target=lambda: box.exec(command=changes[change], timeoutSec=2) if change != "grow" else _grow(box))
    changer.start()
    try:
        while piece := response.read1(1 << 20):
            taken += piece
    except (OSError, ValueError):
        pass
    changer.join()
    connection.close()
    assert set(taken) == {0}
    assert len(taken) == size or (change == "shrink" and len(taken) < size)


def _grow(box: Lease) -> None:
    response = box.api.post(f"{box.path}/exec", {"command": "yes >>file", "timeoutSec": 1})
    assert response.status_code in (200, 504), response.text  # 200: the disk was full first


def test_a_fifo_that_takes_the_place_of_a_file(box: Lease) -> None:
    """Whatever is found at the name when it is opened: no request waits for the FIFO's other end."""
    box.sh("while ! test -e enough; do mkfifo p; mv p name; echo file >f; mv f name; done >/dev/null 2>&1 &")
    for turn in range(40):
        response = box.api.get(box.file("name")) if turn % 2 else box.api.post(box.file("name"), data=b"file\n")
        assert response.status_code in (200, 400, 404), response.text
    box.sh("touch enough")


@pytest.mark.parametrize("name", ["/mnt/data/lost+found", "/mnt/data/.sandboxhub-tmp-" + "0" * 32])
def test_names_of_ours_are_nobody_s(box: Lease, name: str) -> None:
    """Nothing breaks when a tenant uses them."""
    response = box.api.post(box.file(name), data=b"x")
    assert response.status_code in (200, 400)
    box.exec("sh", "-c", 'rm -rf "$1"; mkdir -p "$1"; ln -s /etc "$1/link"', "sh", name)
    assert box.api.get(box.file(f"{name}/link/passwd")).status_code in (400, 404)
    box.write("file", b"x")
    assert b"file" in box.read("")
