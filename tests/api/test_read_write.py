"""The verbs read and write: files in JSON."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import pytest
from harness.client import Lease, decoded
from harness.limits import MAX_BODY


def read(box: Lease, path: str | None = None) -> dict[str, Any]:
    response = box.api.post("/sandbox/read", {"id": box.id} if path is None else {"id": box.id, "path": path})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def write(box: Lease, path: str, data: bytes) -> dict[str, Any]:
    response = box.api.post("/sandbox/write", {"id": box.id, "path": path, "data": base64.b64encode(data).decode()})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_bytes_come_back_exactly(box: Lease, size: int) -> None:
    data = secrets.token_bytes(size)
    assert write(box, "dir/file", data) == {"path": "/mnt/data/dir/file", "bytes": size}
    body = read(box, "/mnt/data/dir/file")
    assert decoded(body.pop("data")) == data
    assert body == {"path": "/mnt/data/dir/file", "dir": False}


def test_listing(box: Lease) -> None:
    for path in (None, "", "."):
        assert read(box, path) == {"path": "/mnt/data", "dir": True, "entries": []}
    for name in (b"b", b"a b", b".c", b"two\nlines", b"\xff"):
        box.write(name, b"")
    assert read(box)["entries"] == [".c", "a b", "b", "two\nlines", "\ufffd"]


def test_without_data_the_file_is_emptied(one_box: Lease) -> None:
    write(one_box, "file", b"old")
    for body in ({}, {"data": None}, {"data": ""}):
        assert one_box.api.post("/sandbox/write", {"id": one_box.id, "path": "file", **body}).json()["bytes"] == 0
        assert one_box.read("file") == b""


@pytest.mark.parametrize("data", ["a", "aGk", "aGk=\n", "aGk=aGk=", "a-_=", "ä", " aGk=", "aGk= ", 1, ["aGk="]])
def test_data_that_is_no_base64(one_box: Lease, data: Any) -> None:
    one_box.api.refuses(400, "invalid_body", "POST", "/sandbox/write", json={"id": one_box.id, "path": "bad", "data": data})
    one_box.api.refuses(404, "not_found", "GET", one_box.file("bad"))


@pytest.mark.parametrize("path", ["..", "../x", "a/../b", "/etc/passwd", "/"])
def test_paths_that_leave_the_workdir(box: Lease, path: str) -> None:
    for verb in ("read", "write"):
        box.api.refuses(400, "path_refused", "POST", f"/sandbox/{verb}", json={"id": box.id, "path": path})


@pytest.mark.parametrize("path", ["\0", "a\0b", "\ud800", 5, ["a"], {"a": 1}, True])
def test_paths_that_are_none(one_box: Lease, path: Any) -> None:
    for verb in ("read", "write"):
        one_box.api.refuses(400, "invalid_body", "POST", f"/sandbox/{verb}", json={"id": one_box.id, "path": path})


def test_writing_needs_a_path(one_box: Lease) -> None:
    for body in ({}, {"path": ""}, {"path": None}):
        one_box.api.refuses(400, "path_refused", "POST", "/sandbox/write", json={"id": one_box.id, **body})


def test_a_file_that_is_missing(box: Lease) -> None:
    box.api.refuses(404, "not_found", "POST", "/sandbox/read", json={"id": box.id, "path": "missing"})


def test_a_file_too_large_for_json(box: Lease) -> None:
    most = MAX_BODY * 3 // 4
    box.sh(f"head -c {most} /dev/zero >fits; head -c {most + 1} /dev/zero >large; mkfifo fifo")
    assert decoded(read(box, "fits")["data"]) == bytes(most)
    box.api.refuses(413, "too_large", "POST", "/sandbox/read", json={"id": box.id, "path": "large"})
    box.api.refuses(400, "path_refused", "POST", "/sandbox/read", json={"id": box.id, "path": "fifo"})


def test_a_body_too_large(one_box: Lease) -> None:
    body = {"id": one_box.id, "path": "large", "data": base64.b64encode(bytes(MAX_BODY)).decode()}
    one_box.api.refuses(413, "too_large", "POST", "/sandbox/write", json=body)
