"""Write the images of a test node, without a registry, as one archive in Docker's format to stdout.

    python3 -m cluster.images ROOT.tar GUEST BUSYBOX | ctr images import -

| image | what it is |
|---|---|
| localhost/sandboxhub-test:1 | a small Debian with the guest as /.guest/guest |
| localhost/sandboxhub-plain:1 | the same Debian without it |
| localhost/pause:1 | what holds a pod's namespaces |
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    file: Path  #: an uncompressed tar
    digest: str  #: its SHA-256, in hex

    @classmethod
    def of(cls, file: Path) -> Layer:
        with file.open("rb") as opened:
            return cls(file, hashlib.file_digest(opened, "sha256").hexdigest())

    @property
    def name(self) -> str:
        return f"{self.digest}/layer.tar"


def _one_program(file: Path, name: str, program: Path) -> Layer:
    """A layer with one executable file ``name``, and its directory."""
    with tarfile.open(file, "w") as tar:
        for path, mode, kind in ((str(Path(name).parent), 0o755, tarfile.DIRTYPE), (name, 0o755, tarfile.REGTYPE)):
            member = tarfile.TarInfo(path)
            member.mode, member.type = mode, kind
            if kind == tarfile.DIRTYPE:
                tar.addfile(member)
            else:
                member.size = program.stat().st_size
                with program.open("rb") as opened:
                    tar.addfile(member, opened)
    return Layer.of(file)


class Archive:
    """Images that may share layers; ``close`` completes it."""

    def __init__(self, out: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=out, mode="w|")
        self._manifest: list[dict[str, Any]] = []
        self._written: set[str] = set()

    def add(self, tag: str, layers: list[Layer], **config: Any) -> None:
        body = json.dumps(
            {
                "architecture": _ARCHITECTURES[platform.machine()],
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
            }
        ).encode()
        name = f"{hashlib.sha256(body).hexdigest()}.json"
        self._write(name, body)
        for layer in layers:
            if layer.name not in self._written:
                self._written.add(layer.name)
                member = tarfile.TarInfo(layer.name)
                member.size = layer.file.stat().st_size
                with layer.file.open("rb") as opened:
                    self._tar.addfile(member, opened)
        self._manifest.append({"Config": name, "RepoTags": [tag], "Layers": [layer.name for layer in layers]})

    def close(self) -> None:
        self._write("manifest.json", json.dumps(self._manifest).encode())
        self._tar.close()

    def _write(self, name: str, body: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(body)
        self._tar.addfile(member, io.BytesIO(body))


def main(root: Path, guest: Path, busybox: Path) -> None:
    scratch = Path(tempfile.mkdtemp())
    try:
        debian = Layer.of(root)
        with_guest = _one_program(scratch / "guest.tar", ".guest/guest", guest)
        pause = _one_program(scratch / "pause.tar", "bin/busybox", busybox)
        user = {"User": "1000:1000", "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"], "Cmd": ["/bin/sh"]}
        archive = Archive(sys.stdout.buffer)
        archive.add("localhost/pause:1", [pause], User="65535:65535", Entrypoint=["/bin/busybox", "sleep", "2147483647"])
        archive.add("localhost/sandboxhub-plain:1", [debian], **user)
        archive.add("localhost/sandboxhub-test:1", [debian, with_guest], **user)
        archive.close()
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
