"""What the contract suite needs to know of an engine beside its interface. Each engine that joins the suite implements ``Target``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sandboxes.engine.base import Engine


class Target(Protocol):
    engine: str  #: its name
    runtime: str  #: the runtime under test
    image: str  #: the default one
    missing_image: str  #: there is none
    guest_uid: int  #: who the guest is, as it sees itself
    tenant_uid: int  #: who commands are inside
    workdir: str
    volumes: bool  #: volumes work here
    bounded: tuple[str, ...]  #: the file systems in memory that are smaller than the memory

    def make(self) -> Engine:
        """A new engine of one and the same deployment, not opened."""

    def make_foreign(self) -> Engine:
        """An engine of another deployment in the same place, not opened."""

    async def kill(self, name: str) -> None:
        """SIGKILL the sandbox from outside, as an operator or the kernel would."""

    async def freeze(self, name: str) -> None:
        """Stop it from outside: it runs, and does nothing."""

    async def leaks(self) -> list[str]:
        """What is left of any sandbox of either deployment."""

    async def clean(self) -> None:
        """Remove all of the target's own traces."""

    @property
    def engine_program(self) -> str:
        """Python source that defines ``make()``, as above, for a process of its own with ``environment``."""

    @property
    def environment(self) -> Mapping[str, str]: ...
