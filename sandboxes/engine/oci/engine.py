"""The engine: what ``sandboxes.engine.base.Engine`` promises, by runsc or runc on this host."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sandboxes.engine.base import SANDBOX_NAME, ByteStream, Health, Running, Runtime, Spec
from sandboxes.engine.oci import procfs, selftest
from sandboxes.engine.oci.bundle import Record
from sandboxes.engine.oci.cgroups import Cgroups, hierarchies
from sandboxes.engine.oci.config import PROBE_NAME, OciConfig, Paths
from sandboxes.engine.oci.directories import Directories
from sandboxes.engine.oci.disk import LoopDisks
from sandboxes.engine.oci.locks import Locks
from sandboxes.engine.oci.rootfs import RootFilesystems
from sandboxes.engine.oci.runtime import RuntimeProgram
from sandboxes.engine.oci.sandboxes import Sandboxes, bounds_pids_by_rlimit
from sandboxes.engine.oci.storage import Storage
from sandboxes.engine.oci.streams import Streams
from sandboxes.engine.oci.watch import Watch
from sandboxes.engine.tasks import Muted, Starts, finish
from sandboxes.errors import EngineError, SandboxError, SandboxGone, StartFailed

_log = logging.getLogger(__name__)


class OciEngine:
    """Several engines of one deployment may work on one host at once, in one process or in many: a lock on each name keeps them apart."""

    name = "oci"

    def __init__(self, config: OciConfig) -> None:
        self._config = config
        self._paths = Paths(config)
        self._locks = Locks(self._paths.locks)
        self._programs = {
            name: RuntimeProgram(name, _absolute(program), self._paths.runtime_state(name), config.rootless)
            for name, program in config.runtimes.items()
        }
        storage: Storage = (
            LoopDisks(self._paths, self._locks) if config.bounds_disks else Directories(self._paths, self._locks, config.owner)
        )
        self._storage = storage
        self._sandboxes = Sandboxes(
            config=config,
            paths=self._paths,
            storage=storage,
            cgroups=Cgroups(config.instance, [] if config.rootless else hierarchies()),
            roots=RootFilesystems(self._paths),
            runtimes=self._programs,
        )
        self._streams = Streams()
        self._watch = Watch(self._ended)
        self._proven: dict[str, Runtime] = {}
        self._starts = Starts()
        self._ending = Muted()
        self._tell: Callable[[str, str], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # More at once only make each other slower.
        self._slots = asyncio.Semaphore(2 * (os.cpu_count() or 1))

    @property
    def runtimes(self) -> Mapping[str, Runtime]:
        return self._proven

    def images(self) -> tuple[str, ...]:
        return self._sandboxes.roots.names()

    @property
    def any_image(self) -> bool:
        return False

    async def open(self) -> None:
        self._paths.make()
        await asyncio.to_thread(self._prepare)
        for name in await asyncio.to_thread(self._sandboxes.names):
            if PROBE_NAME.fullmatch(name) and not self._locks.held(name):  # a crash in a self-test left it
                async with self._locks.hold(name):
                    await self._sandboxes.remove(name)
        await self._storage.recover()
        await self._locks.sweep()
        proofs = [selftest.prove(self._sandboxes, self._streams, self._locks, name) for name in self._programs]
        versions = await asyncio.gather(*proofs, return_exceptions=True)
        for name, version in zip(self._programs, versions, strict=True):
            if isinstance(version, BaseException):
                raise version
            self._proven[name] = Runtime(name, version, self._unenforced(name))

    async def close(self) -> None:
        await self._starts.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watch.close()
        self._streams.close()
        self._sandboxes.roots.close()

    async def audit(self) -> tuple[str, ...]:
        return ()  # sandboxes have no network at all, which is the engine's own doing

    async def start(self, spec: Spec) -> Running:
        if not SANDBOX_NAME.fullmatch(spec.name):
            raise StartFailed("That is not the name of a sandbox.")
        if spec.runtime not in self._proven:
            raise StartFailed(f"This host has no runtime {spec.runtime}.")
        async with self._starts.one(spec.name):
            return await self._start(spec)

    async def end(self, name: str) -> None:
        if not SANDBOX_NAME.fullmatch(name):
            raise EngineError("That is not the name of a sandbox.")
        self._starts.stop(name)
        with self._ending.hold(name):
            self._watch.forget(name)
            async with self._locks.hold(name):
                await finish(self._remove(name))

    async def observe(self) -> Mapping[str, Health]:
        found = await asyncio.to_thread(self._look)
        health = {}
        for name, record in found.items():
            if record is not None and record.process is not None:
                health[name] = Health.RUNNING
                if name not in self._ending:
                    self._watch.arm(name, record.process)
            else:
                health[name] = Health.DEAD
        return health

    def watch(self, died: Callable[[str, str], None]) -> None:
        self._tell = died

    async def connect(self, name: str) -> ByteStream:
        if not SANDBOX_NAME.fullmatch(name):
            raise SandboxGone("That is not the name of a sandbox.")
        record = await self._living(name)
        try:
            return await self._streams.connect(name, self._programs[record.runtime])
        except EngineError:
            await self._living(name)
            raise

    async def ensure_volume(self, name: str, size: int) -> None:
        await self._storage.ensure_volume(name, size)

    async def delete_volume(self, name: str) -> None:
        await self._storage.delete_volume(name)

    async def list_volumes(self) -> Mapping[str, int]:
        return await asyncio.to_thread(self._storage.volumes)

    async def _start(self, spec: Spec) -> Running:
        async with self._locks.hold(spec.name):
            record, traces = await asyncio.to_thread(self._found, spec.name)
            if record is not None and record.process is not None and procfs.alive(record.process):
                self._watch.arm(spec.name, record.process)
                return Running(record.runtime, record.image)
            if traces:
                await finish(self._remove(spec.name))
            async with self._slots:
                record = await self._launch(spec)
        return Running(record.runtime, record.image)

    def _found(self, name: str) -> tuple[Record | None, list[str]]:
        return self._sandboxes.record(name), self._sandboxes.traces(name)

    async def _launch(self, spec: Spec) -> Record:
        try:
            record, first = await self._sandboxes.launch(spec)
        except BaseException as error:
            try:
                await finish(self._remove(spec.name))
            except SandboxError as left:  # reconciled later by its traces; why it did not start matters more now
                _log.error("after a failed start of %s: %s", spec.name, left.detail)
            if isinstance(error, EngineError | OSError):
                raise StartFailed(
                    f"The sandbox could not be started: {self._sandboxes.redact(getattr(error, 'detail', str(error)))}"
                ) from error
            raise
        self._streams.keep(spec.name, first)
        assert record.process is not None  # noqa: S101
        self._watch.arm(spec.name, record.process)
        return record

    async def _remove(self, name: str) -> None:
        """Remove it. The caller holds its lock."""
        self._watch.forget(name)
        self._streams.drop(name)
        try:
            await self._sandboxes.remove(name)
        except OSError as error:
            raise EngineError(f"The sandbox is not gone: {self._sandboxes.redact(str(error))}") from error

    async def _living(self, name: str) -> Record:
        record = await asyncio.to_thread(self._sandboxes.record, name)
        if record is None or record.process is None:
            raise SandboxGone("There is no such sandbox.")
        if not procfs.alive(record.process):
            raise SandboxGone(f"The sandbox ended: {await asyncio.to_thread(self._sandboxes.death, name, record)}.")
        if record.runtime not in self._programs:
            raise EngineError(f"The runtime {record.runtime}, which the sandbox runs in, is not configured any more.")
        return record

    def _look(self) -> dict[str, Record | None]:
        """What is there by name: a record only of those that run. Without those that are being started now."""
        found: dict[str, Record | None] = {}
        for name in self._sandboxes.names():
            if not SANDBOX_NAME.fullmatch(name):
                continue
            record = self._sandboxes.record(name)
            finished = record is not None and record.process is not None
            if record is not None and record.process is not None and procfs.alive(record.process):
                found[name] = record
            elif (finished or not self._locks.held(name)) and self._sandboxes.traces(name):
                found[name] = None
        return found

    def _ended(self, name: str) -> None:
        """The first process of ``name`` is no more."""
        if name not in self._ending:
            task = asyncio.create_task(self._report(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _report(self, name: str) -> None:
        record = await asyncio.to_thread(self._sandboxes.record, name)
        if record is None or name in self._ending:
            return  # ended meanwhile, here or by another process
        reason = await asyncio.to_thread(self._sandboxes.death, name, record)
        _log.warning("sandbox %s died: %s", name, reason)
        self._streams.drop(name)
        if self._tell is not None and name not in self._ending:
            self._tell(name, reason)

    def _prepare(self) -> None:
        records = [self._sandboxes.record(name) for name in self._sandboxes.names()]
        self._sandboxes.roots.prepare(self._config.guest, {path for record in records if record for path in (record.rootfs, record.guest)})

    def _unenforced(self, runtime: str) -> tuple[str, ...]:
        disk = () if self._config.bounds_disks else ("disk",)
        if not self._config.rootless:
            return disk
        pids = () if bounds_pids_by_rlimit(runtime, rootless=True) else ("pids",)
        return ("memory", "cpus", *pids, *disk)


def _absolute(program: Path) -> Path:
    """A path holds wherever a child runs; a bare name is looked for in the system's directories."""
    return program.absolute() if len(program.parts) > 1 else program
