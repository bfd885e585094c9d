"""What the black-box tests share: one deployment that serves, and sandboxes in it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster.fixtures import kubeconfig, node
from harness.client import Api, Lease
from harness.limits import ENGINE, EXEC_TIMEOUT, MAX_BODY, MAX_FILE, RUNTIMES
from harness.pods import IMAGE, PodTraces, namespace
from harness.server import Deploy, Server, deployment

__all__ = ["kubeconfig", "node"]  # fixtures


def pytest_configure() -> None:
    """SIGTERM ends a run as Ctrl-C does: servers are stopped and their sandboxes ended."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@dataclass(frozen=True)
class Place:
    """Where a server of the tests runs its sandboxes."""

    settings: dict[str, str]  #: environment variables
    image: str
    traces: PodTraces | None = None  #: where they are not on this host


@contextmanager
def _a_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """By ``ENGINE``; in a cluster, a namespace of its own."""
    settings = {"SANDBOXHUB_ENGINE": ENGINE, "SANDBOXHUB_RUNTIMES": ",".join(RUNTIMES)}
    if ENGINE == "oci":
        yield Place(settings, "host")
        return
    with namespace(request.getfixturevalue("kubeconfig"), tmp_path_factory.mktemp("accounts")) as space:
        settings |= {"SANDBOXHUB_NAMESPACE": space.name, "SANDBOXHUB_IMAGE": IMAGE, "KUBECONFIG": str(space.kubeconfig)}
        # Sixteen at once must fit on a small node, and come up on it.
        settings |= {"SANDBOXHUB_CPUS": "0.5", "SANDBOXHUB_START_WAIT": "120"}
        settings |= {"SANDBOXHUB_EGRESS_PROBE": "off"}  # tests count the pods; tests/cluster/test_egress.py has one
        yield Place(settings, IMAGE, PodTraces(space))


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Of the shared server."""
    with _a_place(request, tmp_path_factory) as made:
        yield made


@pytest.fixture
def own_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Of a test's own server."""
    with _a_place(request, tmp_path_factory) as made:
        yield made


@pytest.fixture
def deploy(own_place: Place, tmp_path: Path) -> Deploy:
    """Make a server of the test's own, with settings: ``with deploy(SANDBOXHUB_REAPER="off") as server``."""

    def make(**settings: str) -> AbstractContextManager[Server]:
        return deployment(tmp_path / "home", traces=own_place.traces, **own_place.settings | settings)

    return make


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, place: Place) -> Iterator[Server]:
    """A server with both runtimes and small limits; its log must stay free of errors."""
    with deployment(
        tmp_path_factory.mktemp("deployment") / "home",
        traces=place.traces,
        **place.settings,
        SANDBOXHUB_MEMORY="256MiB",
        SANDBOXHUB_DISK="256MiB",
        SANDBOXHUB_VOLUME_SIZE="32MiB",
        SANDBOXHUB_MAX_FILE=str(MAX_FILE),
        SANDBOXHUB_MAX_BODY=str(MAX_BODY),
        SANDBOXHUB_EXEC_TIMEOUT=str(EXEC_TIMEOUT),
        SANDBOXHUB_REAP_INTERVAL="0.5",
    ) as running:
        yield running


@pytest.fixture(scope="session")
def image(place: Place) -> str:
    """The server's default image."""
    return place.image


@pytest.fixture(scope="session")
def api(server: Server) -> Api:
    """The API, with a key of org ``acme`` that may do everything."""
    return server.api("acme")


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def _shared(api: Api) -> Callable[[str], Lease]:
    leases: dict[str, Lease] = {}

    def get(runtime: str) -> Lease:
        if runtime not in leases:
            leases[runtime] = api.create(runtime=runtime, ttlSec=86_400)
        return leases[runtime]

    return get


@pytest.fixture
def box(_shared: Callable[[str], Lease], runtime: str) -> Lease:
    """A sandbox of each runtime, with an empty workdir. Many tests use the same one: no test may harm it."""
    lease = _shared(runtime)
    lease.exec("find", ".", "-mindepth", "1", "-delete")
    assert lease.read("") == b"\n"
    return lease


@pytest.fixture
def one_box(_shared: Callable[[str], Lease]) -> Lease:
    """As ``box``, of one runtime only, for what does not depend on it."""
    return _shared("runc")


@pytest.fixture
def fresh(api: Api, runtime: str) -> Iterator[Callable[..., Lease]]:
    """Lease sandboxes of their own; they are ended afterwards."""
    taken: list[Lease] = []

    def create(**members: Any) -> Lease:
        taken.append(api.create(runtime=runtime, **members))
        return taken[-1]

    yield create
    for lease in taken:
        assert api.delete(lease.path, params={"purge": "1"}).status_code in (204, 404)
