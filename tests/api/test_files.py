"""GET and POST /v1/sandboxes/{id}/fs: bytes as they are, complete or not at all, and only of the workdir."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from harness.client import Lease
from harness.limits import ENGINE, MAX_FILE, MIB
from harness.server import Server
from harness.waiting import at_once, until

NAMES = [
    b"plain",
    b"a b",
    b"two\nlines",
    b"\xff\xfe\x80",
    "ünï/cödé".encode(),
    b"a+b&c=d?e#f",
    b"100%",
    b"-rf",
    b"*",
    b"..a",
    b"a..",
    b"...",
    b".hidden",
    b"\x01\x7f",
    b"'\"\\",
]
HOSTILE = [
    "..",
    "../x",
    "a/../x",
    "a/..",
    "/mnt/data/../x",
    "../mnt/data/x",
    "/",
    "/etc/passwd",
    "/mnt",
    "/mnt/datax",
    "/proc/self/environ",
    "/tmp/x",
    "%00",
    "a%00b",
]


class Stream:
    """``size`` bytes that are made while they are sent. ``iter`` of it is sent in chunks, itself with its length."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.digest = hashlib.sha256()

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        block = secrets.token_bytes(64 * 1024)
        for start in range(0, self.size, len(block)):
            piece = block[: self.size - start]
            self.digest.update(piece)
            yield piece


def raw(box: Lease, path: str) -> str:
    """The address of a path that is encoded already."""
    return f"{box.path}/fs?path={path}"


def peak(server: Server, work: Callable[[], Any]) -> int:
    """How much the server's memory grows, at most, while ``work()`` runs; in bytes."""
    assert server.process is not None
    proc = Path(f"/proc/{server.process.pid}")
    (proc / "clear_refs").write_text("5")
    before = server.memory()
    work()
    fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024 - before


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 3 * MIB + 1])
def test_bytes_come_back_exactly(box: Lease, size: int) -> None:
    data = secrets.token_bytes(size)
    assert box.write("file", data) == {"path": "/mnt/data/file", "bytes": size}
    assert box.read("file") == data
    assert box.sh("sha256sum <file").split()[0] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("chunked", [False, True])
def test_large_files_stream_both_ways(box: Lease, server: Server, chunked: bool) -> None:
    """100 MB each way do not pass through the server's memory."""
    size = 100_000_000
    sent = Stream(size)
    received = hashlib.sha256()

    def write() -> None:
        response = box.api.post(box.file("large"), data=iter(sent) if chunked else sent)
        assert response.status_code == 200, response.text
        assert response.json()["bytes"] == size

    def read() -> None:
        with box.api.get(box.file("large"), stream=True) as response:
            assert (response.status_code, response.headers["Content-Length"]) == (200, str(size))
            for piece in response.iter_content(MIB):
                received.update(piece)

    assert peak(server, write) < 40 * MIB
    assert peak(server, read) < 40 * MIB
    assert received.digest() == sent.digest.digest()


def test_a_reader_that_stops_reading_holds_no_memory(box: Lease, server: Server) -> None:
    box.sh("head -c 100000000 /dev/zero >large")
    connection = box.api.connection()

    def begin() -> None:
        connection.request("GET", f"/v1{box.file('large')}", headers={"Authorization": f"Bearer {box.api.key}"})
        assert connection.getresponse().read(1) == b"\0"
        assert box.read("large") == bytes(100_000_000)

    assert peak(server, begin) < 40 * MIB
    connection.close()


@pytest.mark.parametrize("name", NAMES)
def test_names_are_bytes(box: Lease, name: bytes) -> None:
    box.write(name, b"content of " + name)
    assert box.read(name) == b"content of " + name
    assert box.read(b"./" + name) == box.read(b"/mnt/data/" + name) == box.read(name)
    listed = box.exec("find", ".", "-type", "f", "-print0", encoding="base64")["stdout"]
    assert listed == base64.b64encode(b"./" + name + b"\0").decode()


def test_listing(box: Lease) -> None:
    assert box.read("") == b"\n"
    for name in (b"b", b"a b", b".c", b"two\nlines", b"\xff", b"B", b"dir/inside"):
        box.write(name, b"")
    box.sh("ln -s nowhere link; mkfifo fifo")
    expected = b".c\nB\na b\nb\ndir\nfifo\nlink\ntwo\\nlines\n\xff\n"
    for path in ("", ".", "/mnt/data", "/mnt/data/", "dir/.", "./"):
        assert box.read(path) == (expected if path != "dir/." else b"inside\n")
    response = box.api.get(f"{box.path}/fs")
    assert response.content == expected
    assert box.read("dir/") == b"inside\n"
    box.sh("mkdir empty")
    assert box.read("empty") == b"\n"


def test_a_directory_of_many(box: Lease) -> None:
    box.sh("mkdir many; cd many; seq -f '%05g' 20000 | xargs touch")
    assert box.read("many").decode().split() == [f"{number:05}" for number in range(1, 20001)]


def test_directories_are_made(box: Lease) -> None:
    box.write("a/b c/d", b"x")
    assert box.read("a/b c/d") == b"x"
    found = box.sh("stat -c %a:%u a 'a/b c' 'a/b c/d'").replace("2755", "755")  # a pod's volumes pass their group on
    assert found.split() == ["755:1000", "755:1000", "644:1000"]


def test_an_existing_file_keeps_its_mode(box: Lease) -> None:
    box.sh("echo old >file; chmod 4750 file; ln file other")
    box.write("file", b"new")
    assert box.sh("stat -c %a file; cat other") in ("4750\nold\n", "750\nold\n")
    assert box.read("file") == b"new"


@pytest.mark.parametrize("path", HOSTILE)
def test_paths_that_leave_the_workdir(box: Lease, path: str) -> None:
    box.sh("mkdir a")
    for method in ("GET", "POST"):
        box.api.refuses(400, "path_refused", method, raw(box, path))
    assert box.read("") == b"a\n"


@pytest.mark.parametrize("path", ["x" * 256, "y" * 5000, "z/" * 2500 + "z"])
def test_paths_that_are_too_long(box: Lease, path: str) -> None:
    for method in ("GET", "POST"):
        box.api.refuses(400, "path_refused", method, box.file(path))
    assert box.read("") == b"\n"


@pytest.mark.parametrize("path", ["", "/", ".", "dir", "dir/", "new/", "file/", "file/x", "/mnt/data"])
def test_writing_to_what_is_no_file(box: Lease, path: str) -> None:
    box.sh("mkdir dir; echo old >file")
    box.api.refuses(400, "path_refused", "POST", box.file(path), data=b"new")
    assert box.sh("cat file; find . | sort") == "old\n.\n./dir\n./file\n"


def test_writing_needs_a_path(box: Lease) -> None:
    box.api.refuses(400, "path_refused", "POST", f"{box.path}/fs", data=b"x")


@pytest.mark.parametrize("path", ["missing", "dir/missing", "missing/file", "file/x", "file/", "closed", "dangling"])
def test_reading_what_is_not_there(box: Lease, path: str) -> None:
    box.sh("mkdir dir; echo x >file; echo x >closed; chmod 0 closed; ln -s nowhere dangling")
    box.api.refuses(404, "not_found", "GET", box.file(path))


def test_links_inside_are_followed(box: Lease) -> None:
    box.sh("mkdir dir; echo x >dir/file; ln -s dir/file one; ln -s /mnt/data/dir two; ln -s ../mnt bad; ln -s dir/../dir three")
    assert box.read("one") == box.read("two/file") == box.read("three/file") == b"x\n"
    assert box.read("two") == b"file\n"
    box.write("one", b"through a link")
    box.write("two/new", b"new")
    assert box.sh("cat dir/file dir/new; test -L one -a -L two") == "through a linknew"


@pytest.mark.parametrize(
    "target", ["/etc", "/etc/passwd", "..", "../..", "/", "/proc/self/root/etc", "/tmp", "/dev/zero", "/mnt/data/../../tmp"]
)
def test_links_that_lead_out(box: Lease, target: str) -> None:
    box.exec("ln", "-s", target, "link")
    for path in ("link", "link/passwd"):
        response = box.api.get(box.file(path))
        assert (response.status_code, response.json()["code"]) in ((400, "path_refused"), (404, "not_found"))
    for path in ("link/hostile", "link"):
        response = box.api.post(box.file(path), data=b"hostile")
        assert (response.status_code, response.json()["code"]) in ((400, "path_refused"), (400, "write_failed"))
    assert box.sh("ls -A /tmp | grep hostile || true; readlink link") == f"{target}\n"


def test_links_in_a_ring(box: Lease) -> None:
    box.sh("ln -s b a; ln -s a b; ln -s self self")
    for path in ("a", "self", "a/x"):
        box.api.refuses(400, "path_refused", "GET", box.file(path))
        box.api.refuses(400, "path_refused", "POST", box.file(path))


def test_what_is_no_regular_file_never_blocks(box: Lease) -> None:
    socket = "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
    box.sh(f'mkfifo fifo; python3 -c "{socket}"; ln -s fifo to-fifo')
    for name in ("fifo", "socket", "to-fifo"):
        box.api.refuses(400, "path_refused", "GET", box.file(name))
        box.api.refuses(400, "path_refused", "POST", box.file(name), data=b"x")
    assert box.sh("test -p fifo -a -S socket && ls -A") == "fifo\nsocket\nto-fifo\n"


def test_a_full_disk(fresh: Callable[..., Lease]) -> None:
    """The volume of a project has 32 MiB here."""
    if ENGINE == "kubernetes":
        pytest.skip("the volumes of the test cluster are not bounded")
    lease = fresh(**{"class": "dev", "project": f"full-{secrets.token_hex(4)}"})
    lease.write("kept", b"old")
    for path in ("new", "kept", "dir/new"):
        problem = lease.api.refuses(400, "write_failed", "POST", lease.file(path), data=iter(Stream(40 * MIB)))
        assert "full" in problem["detail"]
    assert lease.read("kept") == b"old"
    assert lease.sh("find . -type f -not -path './lost+found/*'") == "./kept\n"
    lease.write("new", bytes(16 * MIB))


def test_too_large_is_told_at_the_headers(one_box: Lease) -> None:
    connection = one_box.api.connection()
    connection.putrequest("POST", f"/v1{one_box.file('huge')}")
    connection.putheader("Authorization", f"Bearer {one_box.api.key}")
    connection.putheader("Content-Length", str(MAX_FILE + 1))
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["code"]) == (413, "too_large")
    one_box.api.refuses(404, "not_found", "GET", one_box.file("huge"))


def test_too_large_without_a_length(box: Lease) -> None:
    try:
        response = box.api.post(box.file("huge"), data=iter(Stream(MAX_FILE + MIB)))
    except requests.ConnectionError:
        pass  # told while it still sent
    else:
        assert (response.status_code, response.json()["code"]) == (413, "too_large")
    until(lambda: box.sh("ls -A") == "")


def test_a_hang_up_leaves_nothing(box: Lease) -> None:
    box.write("file", b"old")
    for path in ("file", "new"):
        connection = box.api.connection()
        connection.putrequest("POST", f"/v1{box.file(path)}")
        connection.putheader("Authorization", f"Bearer {box.api.key}")
        connection.putheader("Content-Length", str(10 * MIB))
        connection.endheaders()
        connection.send(bytes(2 * MIB))
        until(lambda: box.sh("ls -A | wc -l") == "2\n")  # the unfinished one is there
        connection.close()
        until(lambda: box.sh("ls -A") == "file\n")
    assert box.read("file") == b"old"


def test_writers_at_once_do_not_mix(box: Lease) -> None:
    contents = [bytes([65 + number]) * (2 * MIB + number) for number in range(8)]
    answers = at_once(8, lambda number: box.write("file", contents[number]))
    assert [answer["bytes"] for answer in answers] == [len(content) for content in contents]
    assert box.read("file") in contents
    assert box.sh("ls -A") == "file\n"


def test_readers_see_old_or_new(box: Lease) -> None:
    contents = [bytes([65 + number]) * MIB for number in range(4)]
    box.write("file", contents[0])

    def work(number: int) -> bytes | None:
        return box.read("file") if number % 2 else box.write("file", contents[number // 2]) and None

    assert all(seen in contents for seen in at_once(8, work) if seen is not None)


def test_head(one_box: Lease) -> None:
    one_box.write("file", b"12345")
    response = one_box.api.request("HEAD", one_box.file("file"))
    assert (response.status_code, response.headers["Content-Length"], response.content) == (200, "5", b"")


def test_any_content_type_will_do(one_box: Lease) -> None:
    for kind in ("application/json", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/plain"):
        response = one_box.api.post(one_box.file("file"), data=b"{not json\r\n--x", headers={"Content-Type": kind})
        assert response.status_code == 200
        assert one_box.read("file") == b"{not json\r\n--x"


def test_both_prefixes(one_box: Lease) -> None:
    path = f"/sandbox/{one_box.id}/fs?path=file"
    assert one_box.api.post(path, data=b"singular").json() == {"path": "/mnt/data/file", "bytes": 8}
    assert one_box.api.get(path).content == b"singular" == one_box.read("file")


def test_workdir_of_class_dev(fresh: Callable[..., Lease]) -> None:
    lease = fresh(**{"class": "dev", "project": f"p-{secrets.token_hex(4)}"})
    assert lease.write("a", b"x")["path"] == "/work/a"
    assert lease.read("/work/a") == b"x"
    lease.api.refuses(400, "path_refused", "GET", lease.file("/mnt/data/a"))
