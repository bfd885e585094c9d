"""The contract of an engine: it starts and ends sandboxes and opens a byte stream into one. What happens inside is the guest's.

An engine knows neither Django models nor HTTP. All of its methods run on the event loop that it was made on. Every failure leaves as
one of ``sandboxes.errors``: ``StartFailed`` or ``EngineError``, its ``detail`` fit to be shown to a tenant. ``tests/contract/`` is the
proof, the same for every engine.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

#: The form of a sandbox's name. runsc takes an id for a prefix of others: a name of another length or form must never reach it.
SANDBOX_NAME = re.compile(r"m-[0-9a-f]{24}-[0-9]{4}")


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use. An engine enforces what its mode can and says in ``Runtime.unenforced`` what it cannot."""

    memory: int = 1 << 30  #: bytes; also bounds what lies in /tmp, /run and /dev/shm
    cpus: float = 2.0
    pids: int = 512  #: processes and threads
    disk: int = 2 << 30  #: bytes of the workdir (a volume keeps the size it was made with)


@dataclass(frozen=True)
class Spec:
    """One sandbox to start. ``name`` is all that is needed to find it again."""

    name: str  #: ``m-<24 hex>-<generation, 4 digits>``: ``SANDBOX_NAME``
    runtime: str  #: one of ``Engine.runtimes``
    image: str  #: ``host``, or a name or reference that the engine can resolve
    workdir: str  #: absolute path inside
    volume: str | None = None  #: the name of a volume that ``ensure_volume`` made; without one the workdir ends with the sandbox
    limits: Limits = field(default_factory=Limits)
    labels: Mapping[str, str] = field(default_factory=dict)  #: lead a stranger from the container to its lease


@dataclass(frozen=True)
class Running:
    """What was started."""

    runtime: str
    image: str


class Health(enum.Enum):
    RUNNING = "running"
    DEAD = "dead"  #: traces are left (state, mounts, cgroups, directories) that ``end`` removes


@dataclass(frozen=True)
class Runtime:
    """An isolation that an engine proved at start."""

    name: str  #: ``gvisor``, ``runc``, ``kata-clh`` or ``kata-fc``
    version: str
    unenforced: tuple[str, ...] = ()  #: names of ``Limits`` fields that this mode cannot enforce


class Receiver(Protocol):
    """Takes what a ``ByteStream`` brings. Called on the event loop, never re-entrantly."""

    def data_received(self, data: memoryview) -> None:
        """``data`` is valid only during the call."""

    def stream_lost(self, reason: str) -> None:
        """The last call: the stream has ended, for ``reason`` in plain words."""


class ByteStream(Protocol):
    """stdin and stdout of one guest connection."""

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver. Called once; nothing that arrived before is lost."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue ``data``; it is copied or sent before the call returns. Never raises after the stream is lost."""

    async def drain(self) -> None:
        """Wait until the queue is below its high-water mark, or the stream is lost."""

    def close(self) -> None:
        """Close both directions and free what serves the stream. Idempotent."""


class Engine(Protocol):
    name: str  #: ``oci`` or ``kubernetes``

    @property
    def runtimes(self) -> Mapping[str, Runtime]:
        """The runtimes that ``open`` proved, in order of preference."""

    async def open(self) -> None:
        """Prove the configured runtimes with a self-test.

        ``EngineError`` says exactly what is missing and what to do. Called before anything else.
        """

    async def close(self) -> None:
        """Let go of watchers and streams. Sandboxes keep running."""

    async def audit(self) -> tuple[str, ...]:
        """Try out from within a sandbox what only the world around can enforce: that nothing is reached from there. What does not hold, in
        plain words for staff.

        May start a sandbox of the engine's own, and take minutes. Raises ``EngineError`` when it could not be tried.
        """

    async def start(self, spec: Spec) -> Running:
        """Start a sandbox with the guest as its first process.

        Idempotent by name: one that runs is left as it is. On failure or cancellation nothing is left. Raises ``StartFailed``.
        """

    async def end(self, name: str) -> None:
        """End a sandbox and remove all that it held, its own workdir included, a volume's data excluded. Returns when it is observed gone.

        Legal at any time, for any name, twice, and from two processes at once. Waits for a ``start`` of the same name or cuts it short."""

    async def observe(self) -> Mapping[str, Health]:
        """Every sandbox of this deployment (and, on oci, of this host) that left any trace, by name."""

    def watch(self, died: Callable[[str, str], None]) -> None:
        """Call ``died(name, reason)`` once, at once and without polling, when a sandbox that this engine started or observed dies without
        ``end``.
        """

    async def connect(self, name: str) -> ByteStream:
        """Open a stream to the guest. Raises ``SandboxGone`` when there is no such sandbox, ``EngineError`` when it does not answer."""

    async def ensure_volume(self, name: str, size: int) -> None:
        """Make a volume of ``size`` bytes unless it exists (then its size stays)."""

    async def delete_volume(self, name: str) -> None:
        """Delete a volume and its data, which no sandbox holds. Idempotent."""

    async def list_volumes(self) -> Mapping[str, int]:
        """Names and sizes in bytes."""

    def images(self) -> tuple[str, ...]:
        """The images that this engine knows, its default first."""

    @property
    def any_image(self) -> bool:
        """Whether it can start others than ``images``: any reference that somebody allows."""
