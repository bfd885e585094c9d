"""A second server process on the same home and database, and small images of our own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy, which

import pytest
from harness.client import Lease
from harness.limits import ENGINE
from harness.server import Server

_PROGRAMS = ("sh", "stty", "sleep", "cat", "ls", "head", "tr", "seq", "sha256sum")


@pytest.fixture(scope="session")
def second(server: Server) -> Iterator[Server]:
    """Tests may stop and kill it, and start it again afterwards. It pings every few seconds."""
    with server.replica(DJANGO_SETTINGS_MODULE="tests.terminal.fast_pings").running() as other:
        yield other


@pytest.fixture(scope="session")
def images(server: Server) -> tuple[str, str]:
    """The names of an image with sh and bash, and of one with sh only, neither with tmux. Org ``acme`` may use them."""
    if ENGINE == "kubernetes":
        pytest.skip("an image is a directory of the host here: to a cluster it would have to be brought")
    for name, shells in (("bash", ("bash",)), ("dash", ())):
        _build(server.home / "images" / name, (*_PROGRAMS, *shells))
    server.key("acme")  # makes the org
    server.manage("shell", "-c", "from sandboxes.models import Org; Org.objects.filter(slug='acme').update(images=['bash', 'dash'])")
    return "bash", "dash"


@pytest.fixture
def light(fresh: Callable[..., Lease], request: pytest.FixtureRequest) -> Lease:
    """A sandbox whose shell costs next to nothing; in a cluster it is zsh."""
    return fresh() if ENGINE == "kubernetes" else fresh(image=request.getfixturevalue("images")[1])


def _build(root: Path, programs: tuple[str, ...]) -> None:
    """A root file system of the host's programs and the libraries that they are linked with."""
    libraries: set[str] = set()
    for program in programs:
        path = which(program)
        assert path, program
        _place(root, Path("/bin") / program, Path(path))
        linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        libraries |= {word for word in linked.split() if word.startswith("/")}
    for library in libraries:
        _place(root, Path(library), Path(library))
    for directory in ("tmp", "proc", "dev", "etc", "mnt/data", "run"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _place(root: Path, inside: Path, source: Path) -> None:
    target = root / inside.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    copy(source.resolve(), target)
