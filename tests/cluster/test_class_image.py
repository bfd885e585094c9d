"""Class ``exec`` in a pod of its own image, which ``images/build`` made and which brings the guest along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.limits import RUNTIMES
from harness.pods import IMAGE, PodTraces, namespace
from harness.server import Server, deployment

from .faults import Node
from .fixtures import bring_image


@pytest.fixture(scope="module")
def image(node: Node, tmp_path_factory: pytest.TempPathFactory) -> str:
    return bring_image(node, "exec", tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def server_with_it(image: str, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with namespace(kubeconfig, tmp_path_factory.mktemp("accounts")) as space:
        settings = {
            "SANDBOXHUB_ENGINE": "kubernetes",
            "SANDBOXHUB_RUNTIMES": ",".join(RUNTIMES),
            "SANDBOXHUB_NAMESPACE": space.name,
            "SANDBOXHUB_IMAGE": IMAGE,
            "SANDBOXHUB_CLASS_IMAGES": f"exec={image}",
            "SANDBOXHUB_CPUS": "0.5",
            "SANDBOXHUB_EGRESS_PROBE": "off",
            "KUBECONFIG": str(space.kubeconfig),
        }
        with deployment(tmp_path_factory.mktemp("hub") / "home", traces=PodTraces(space), **settings) as server:
            yield server


def test_exec_runs_in_its_own_image(server_with_it: Server, image: str, runtime: str) -> None:
    lease = server_with_it.api("acme").create(runtime=runtime)
    assert (lease.body["image"], lease.body["runtime"]) == (image, runtime)
    assert lease.sh("id -u; id -un; pwd; echo $HOME").split() == ["1000", "sandbox", "/mnt/data", "/mnt/data"]
    assert lease.sh("python3 -c 'import numpy; print(numpy.arange(4).sum())'") == "6\n"
    assert lease.exec(command=": >/usr/file")["exitCode"] != 0
    assert lease.sh("test -x /.guest/guest && ! test -e /.sandboxhub/guest && echo brought") == "brought\n"
    lease.end()
