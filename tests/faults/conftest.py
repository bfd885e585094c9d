"""What goes wrong in a cluster, seen by a user of the API: ``script/test --kubernetes tests/faults``."""

from __future__ import annotations

import pytest
from harness.limits import ENGINE
from harness.pods import Namespace, PodTraces
from harness.server import Server

collect_ignore = [] if ENGINE == "kubernetes" else ["test_broken_cluster.py", "test_sandboxes.py"]


@pytest.fixture(scope="session")
def traces(server: Server) -> PodTraces:
    """Of the shared server."""
    assert isinstance(server.traces, PodTraces)
    return server.traces


@pytest.fixture(scope="session")
def space(traces: PodTraces) -> Namespace:
    """Where its sandboxes are."""
    return traces.space
