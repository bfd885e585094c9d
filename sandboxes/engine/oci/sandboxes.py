"""Makes and removes sandboxes on this host: bundle, disk, cgroup, processes. The caller holds the sandbox's lock."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from sandboxes.engine.base import Spec
from sandboxes.engine.oci import bundle as bundles
from sandboxes.engine.oci import procfs, spec
from sandboxes.engine.oci.bundle import Bundle, Record
from sandboxes.engine.oci.cgroups import Cgroups
from sandboxes.engine.oci.config import GUEST_DIRECTORY, OciConfig, Paths, check_name
from sandboxes.engine.oci.rootfs import RootFilesystems
from sandboxes.engine.oci.runtime import RuntimeProgram, last_error
from sandboxes.engine.oci.storage import Storage
from sandboxes.engine.tasks import finish
from sandboxes.errors import EngineError, StartFailed
from sandboxes.guest.transport import socket_pair

_log = logging.getLogger(__name__)
_KILL_TIMEOUT = 15.0  # seconds


@dataclass
class Sandboxes:
    config: OciConfig
    paths: Paths
    storage: Storage
    cgroups: Cgroups
    roots: RootFilesystems
    runtimes: Mapping[str, RuntimeProgram]

    def record(self, name: str) -> Record | None:
        check_name(name)
        return self._bundle(name).read()

    def names(self) -> set[str]:
        """Every sandbox that left a trace."""
        found = bundles.names(self.paths.bundles) | self.cgroups.names() | self.storage.names()
        for runtime in self.runtimes.values():
            found |= runtime.names()
        return found

    def traces(self, name: str) -> list[str]:
        """What is left of a sandbox, in words."""
        found = []
        if self._bundle(name).path.exists():
            found.append("its bundle")
        if name in self.storage.names():
            found.append("its workdir")
        if name in self.cgroups.names():
            found.append("its cgroup")
        if any(runtime.knows(name) for runtime in self.runtimes.values()):
            found.append("the runtime's state")
        return found

    async def launch(self, wanted: Spec) -> tuple[Record, socket.socket]:
        """Start it; the socket is the guest's first connection. Raises ``EngineError``, ``StartFailed``, ``OSError``.

        What a failure leaves is the caller's to ``remove``. Work in threads is finished even when this is cancelled, lest it make
        something after the removal.
        """
        check_name(wanted.name)
        runtime = self.runtimes[wanted.runtime]
        bundle = self._bundle(wanted.name)
        root = await asyncio.to_thread(self.roots.find, wanted.image, (wanted.workdir, GUEST_DIRECTORY))
        guest = self.roots.guest
        workdir = await self.storage.attach(wanted.name, wanted.volume, wanted.limits.disk)
        place = spec.Place(
            runtime=wanted.runtime,
            rootfs=root.path,
            usr=root.usr,
            workdir=workdir,
            guest=guest,
            cgroup=None if self.config.rootless else self.cgroups.path(wanted.name),
            user=(os.geteuid(), os.getegid()) if self.config.rootless else None,
            bounds_disk=self.config.bounds_disks,
            bounds_pids=bounds_pids_by_rlimit(wanted.runtime, rootless=self.config.rootless),
            ceilings=_ceilings(),
        )
        record = bundles.spec_record(wanted, root.path, guest)
        await finish(asyncio.to_thread(bundle.make, record, spec.build(wanted, place)))
        ours, theirs = socket_pair()
        try:
            with theirs, bundle.log.open("ab") as log:
                started = await runtime.start(wanted.name, bundle.path, bundle.pid_file, stdio=theirs.fileno(), log=log.fileno())
            if not started.ok:
                reason = "it did not end in time" if started.code is None else last_error(bundle.tail())
                raise StartFailed(f"The {wanted.runtime} runtime could not start the sandbox: {self.redact(reason)}")
            process = procfs.identify(int(bundle.pid_file.read_text()))
            if process is None:
                raise StartFailed(f"The sandbox ended as it started: {self.death(wanted.name, record)}")
            return await finish(asyncio.to_thread(bundle.set_process, record, process)), ours
        except BaseException:
            ours.close()
            raise

    async def remove(self, name: str) -> None:
        """End and remove whatever there is of it, in whatever state a crash left it. Raises ``EngineError`` unless all of it is gone."""
        check_name(name)
        bundle = self._bundle(name)
        record = await asyncio.to_thread(bundle.read)
        # Killed first, a runtime's delete finds it stopped: runc would poll every 100 ms for the end of what it kills itself.
        await self._end_processes(name, record)
        for runtime in self.runtimes.values():
            if runtime.knows(name):
                await self._delete_from(runtime, name)
        await self._end_processes(name, record)
        await self.storage.release(name)
        if not await asyncio.to_thread(self.cgroups.remove, name):
            raise EngineError("The cgroup of the sandbox could not be removed.")
        await asyncio.to_thread(bundle.remove)
        left = await asyncio.to_thread(self.traces, name)
        if left:
            raise EngineError(f"The sandbox is not gone: {', '.join(left)} could not be removed.")

    def death(self, name: str, record: Record) -> str:
        """Why its first process ended, in plain words."""
        pressure = self.cgroups.pressure(name)
        limit = f"(limit {_bytes(record.memory)})"
        if pressure.oom_kills and record.runtime == "gvisor":
            return f"it ran out of memory {limit}"
        if pressure.refused_forks and record.runtime == "gvisor":
            return "it started too many processes"
        said = self._bundle(name).tail()
        reason = f"its first process ended: {self.redact(last_error(said))}" if said.strip() else "its first process was killed"
        return f"{reason}; it had run out of memory before {limit}" if pressure.oom_kills else reason

    def redact(self, text: str) -> str:
        """Without the host's paths."""
        words = text
        for path in (self.paths.state, self.paths.base, self.paths.images, self.config.home):
            words = words.replace(str(path), "...")
        return words

    async def _delete_from(self, runtime: RuntimeProgram, name: str) -> None:
        done = await runtime.delete(name)
        if not done.ok:
            _log.warning("%s could not delete %s: %s", runtime.name, name, last_error(done.output))
        if runtime.knows(name):
            await asyncio.to_thread(runtime.forget, name)

    async def _end_processes(self, name: str, record: Record | None) -> None:
        left = await asyncio.to_thread(procfs.kill_all, lambda: self._processes(name, record), timeout=_KILL_TIMEOUT)
        if left:
            raise EngineError(f"The sandbox is not gone: {len(left)} of its processes do not end.")

    def _processes(self, name: str, record: Record | None) -> set[int]:
        self.cgroups.kill(name)
        found = self.cgroups.pids(name)
        process = record.process if record else None
        if process is not None and procfs.alive(process):
            found.add(process.pid)
        if self.config.rootless or process is None:
            found.update(procfs.find_mine(markers=(str(self.paths.state), name), log=self._bundle(name).log))
        return found

    def _bundle(self, name: str) -> Bundle:
        return Bundle(self.paths.bundle(name))


def bounds_pids_by_rlimit(runtime: str, *, rootless: bool) -> bool:
    """Whether RLIMIT_NPROC bounds the processes of one sandbox.

    gVisor counts them itself. The host counts them by user, for all sandboxes together, unless each has a user namespace of
    its own (rootless) and Linux is 5.14 or later.
    """
    if runtime == "gvisor":
        return True
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in os.uname().release.split(".")[:2])
    return rootless and (major, minor) >= (5, 14)


def _ceilings() -> dict[str, int]:
    found = {kind: resource.getrlimit(getattr(resource, kind))[1] for kind in ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_FSIZE")}
    return {kind: value for kind, value in found.items() if value != resource.RLIM_INFINITY}


def _bytes(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
