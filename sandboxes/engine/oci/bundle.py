"""A sandbox's directory: the runtime's configuration, its log, and what the engine has to know after a crash. Blocking calls, short."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sandboxes.engine.base import Spec
from sandboxes.engine.oci.config import ANY_NAME
from sandboxes.engine.oci.procfs import Identity


@dataclass(frozen=True)
class Record:
    """``meta.json``. Without a process the start was not finished."""

    runtime: str
    image: str
    workdir: str
    volume: str | None
    memory: int
    rootfs: str
    guest: str
    labels: Mapping[str, str]
    process: Identity | None = None


class Bundle:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.pid_file = path / "pid"
        self._meta = path / "meta.json"

    def make(self, record: Record, config: Mapping[str, Any]) -> None:
        self.path.mkdir(mode=0o700)
        self._write(self.path / "config.json", config)
        self._write(self._meta, asdict(record))

    def set_process(self, record: Record, process: Identity) -> Record:
        """The last step of a start."""
        record = replace(record, process=process)
        self._write(self._meta, asdict(record))
        return record

    def read(self) -> Record | None:
        """None when there is none, or only the beginning of one."""
        try:
            found = json.loads(self._meta.read_text())
            process = found.pop("process")
            return Record(**found, process=Identity(**process) if process else None)
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def tail(self) -> str:
        """The end of the log of the runtime and the guest."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def remove(self) -> None:
        if self.path.exists():
            shutil.rmtree(self.path)

    @staticmethod
    def _write(path: Path, content: Mapping[str, Any]) -> None:
        """All or nothing: a crash must not leave half a record."""
        new = path.with_suffix(".new")
        new.write_text(json.dumps(content))
        new.replace(path)


def names(bundles: Path) -> set[str]:
    return {entry for entry in os.listdir(bundles) if ANY_NAME.fullmatch(entry)}


def spec_record(spec: Spec, rootfs: Path, guest: Path) -> Record:
    return Record(
        runtime=spec.runtime,
        image=spec.image,
        workdir=spec.workdir,
        volume=spec.volume,
        memory=spec.limits.memory,
        rootfs=str(rootfs),
        guest=str(guest),
        labels=dict(spec.labels),
    )
