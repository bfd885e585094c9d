"""The contract suite runs every test against every runtime of one engine: that of SANDBOXHUB_ENGINE.

kubernetes: on the cluster that KUBECONFIG names, or the one of ``script/cluster``.

oci: ``runsc`` from ``SANDBOXHUB_RUNSC`` or the path, ``runc`` from ``SANDBOXHUB_RUNC`` or the path, in the mode of the user who
runs the tests (``test_rootless.py`` runs the suite once more as an ordinary user); the guest from ``SANDBOXHUB_GUEST``, or built
from ``guest/`` with go.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from harness.limits import ENGINE
from harness.means import missing
from harness.pods import Namespace, namespace
from harness.waiting import PATIENCE

from sandboxes.engine.base import Engine, Limits, Spec
from sandboxes.guest import Command, Guest, Result, run

from .kube import KubernetesTarget
from .oci import OciTarget
from .support import RUNTIMES, new_name, opened, program
from .target import Target

_SOURCES = Path(__file__).parents[2] / "guest"


@pytest.fixture(scope="session")
def guest_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("SANDBOXHUB_GUEST")
    if given:
        return Path(given)
    built = tmp_path_factory.mktemp("guest") / "guest"
    go = shutil.which("go")
    if go is None:
        pytest.fail("set SANDBOXHUB_GUEST, or install go to build the guest")
    subprocess.run([go, "build", "-o", str(built), "."], cwd=_SOURCES, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    return built


@pytest.fixture(scope="session")
def space(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with namespace(kubeconfig, tmp_path_factory.mktemp("accounts")) as space:
        yield space


_OF_ONE = {
    "oci": ["test_plain_directories.py", "test_rootless.py", "test_selftest.py"],
    "kubernetes": ["test_broken_cluster.py", "test_kubernetes.py"],
}
collect_ignore = [file for engine, files in _OF_ONE.items() if engine != ENGINE for file in files]


@pytest.fixture(params=[f"{ENGINE}-{runtime}" for runtime in RUNTIMES])
async def target(request: pytest.FixtureRequest, guest_program: Path) -> AsyncIterator[Target]:
    """Fails a test that leaves anything behind."""
    runtime = request.param.removeprefix(f"{ENGINE}-")
    if ENGINE == "kubernetes":
        pod_target = KubernetesTarget(runtime, guest_program, request.getfixturevalue("space"))
        try:
            yield pod_target
            assert await pod_target.leaks() == []
        finally:
            await pod_target.clean()
        return
    found = program(runtime)
    if found is None:
        missing(f"{RUNTIMES[runtime][1]} is not installed")
    home = Path(tempfile.mkdtemp(prefix="hub-"))  # short: sockets are made in it
    target = OciTarget(runtime, Path(found), guest_program, home)
    try:
        yield target
        assert await target.leaks() == []
    finally:
        await target.clean()
        shutil.rmtree(home)


@pytest.fixture
def kube(target: Target) -> KubernetesTarget:
    if not isinstance(target, KubernetesTarget):
        pytest.skip("of the kubernetes engine")
    return target


@pytest.fixture
async def engine(target: Target) -> AsyncIterator[Engine]:
    """Opened; what still runs when the test is over is ended."""
    async with opened(target.make()) as engine:
        yield engine


class MakeSpec(Protocol):
    def __call__(self, *, volume: str | None = None, image: str | None = None, **limits: float) -> Spec: ...


@pytest.fixture
def make_spec(target: Target) -> MakeSpec:
    """A spec of a new name with small limits."""

    def make(*, volume: str | None = None, image: str | None = None, **limits: float) -> Spec:
        small = Limits(memory=256 << 20, cpus=1.0, pids=128, disk=32 << 20)
        limited = replace(small, **limits)  # type: ignore[arg-type]
        return Spec(new_name(), target.runtime, image or target.image, target.workdir, volume, limited, {"lease": "test"})

    return make


@pytest.fixture
def sh(target: Target) -> Iterator[Callable[[Guest, str], Awaitable[Result]]]:
    async def shell(guest: Guest, script: str) -> Result:
        env = {b"PATH": b"/usr/local/bin:/usr/bin:/bin", b"HOME": target.workdir.encode(), b"LANG": b"C.UTF-8"}
        return await run(guest, Command([b"/bin/sh", b"-c", script.encode()], target.workdir.encode(), env), timeout=PATIENCE)

    yield shell
