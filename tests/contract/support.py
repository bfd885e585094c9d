"""Helpers of the contract suite."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator

from harness.waiting import PATIENCE

from sandboxes.engine.base import Engine
from sandboxes.guest import Guest

RUNTIMES = {"gvisor": ("SANDBOXHUB_RUNSC", "runsc"), "runc": ("SANDBOXHUB_RUNC", "runc")}


def program(runtime: str) -> str | None:
    variable, name = RUNTIMES[runtime]
    return os.environ.get(variable) or shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def new_name() -> str:
    return f"m-{secrets.token_hex(12)}-0001"


@contextlib.asynccontextmanager
async def opened(engine: Engine) -> AsyncIterator[Engine]:
    await engine.open()
    try:
        yield engine
    finally:
        try:
            for name in await engine.observe():
                await engine.end(name)
            for volume in await engine.list_volumes():
                await engine.delete_volume(volume)
        finally:
            await engine.close()


@contextlib.asynccontextmanager
async def reached(engine: Engine, name: str) -> AsyncIterator[Guest]:
    guest = await Guest.open(await engine.connect(name), timeout=PATIENCE)
    try:
        yield guest
    finally:
        guest.close()
