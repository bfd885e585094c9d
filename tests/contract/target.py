"""What the contract suite needs to know of an engine beside its interface. Each engine that joins the suite implements ``Target``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sandboxes.engine.base import Engine


class Target(Protocol):
    runtime: str  #: the runtime under test
    tenant_uid: int  #: who commands are inside
    workdir: str
    volumes: bool  #: volumes work here

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
    def environment(self) -> Mapping[str, str]:
        """For a program that calls ``tests.contract.crash``."""
