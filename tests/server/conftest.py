from collections.abc import Iterator

import pytest

from .client import Hub, Raw
from .client import hub as start


@pytest.fixture(scope="session")
def shared() -> Iterator[Hub]:
    """One server for the tests that leave it as it was."""
    with start() as server:
        yield server.ready()


@pytest.fixture
def server() -> Iterator[Hub]:
    """A server of the test's own."""
    with start() as server:
        yield server.ready()


@pytest.fixture
def raw(shared: Hub) -> Iterator[Raw]:
    connection = shared.raw()
    yield connection
    connection.close()
