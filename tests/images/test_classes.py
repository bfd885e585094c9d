"""What is promised of the class images, in sandboxes of the oci engine that run in what ``images/build`` made.

TEST_IMAGES names the classes, such as ``exec,dev,desktop``: each takes minutes to build, once per machine. By default it is ``exec``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from harness.client import Lease
from harness.images import build_image
from harness.limits import RUNTIMES
from harness.server import Server, deployment

CLASSES = os.environ.get("TEST_IMAGES", "exec").split(",")
WORKDIRS = {"exec": "/mnt/data", "dev": "/work", "desktop": "/work"}

ANALYSIS = """
import io
import bs4, lxml.html, numpy, openpyxl, pandas, PIL.Image, requests, scipy.stats, sklearn.linear_model, sympy, yaml
import matplotlib.pyplot as plot
frame = pandas.read_csv(io.StringIO("x,y\\n1,3\\n2,5\\n3,7\\n"))
model = sklearn.linear_model.LinearRegression().fit(frame[["x"]], frame.y)
frame.plot(x="x", y="y", title="Größe")
plot.savefig("plot.png")
frame.to_excel("table.xlsx")
print(round(float(model.predict(pandas.DataFrame({"x": [10]}))[0])), PIL.Image.open("plot.png").format, numpy.linalg.det(numpy.eye(3)))
"""

PROGRAM = """
#include <iostream>
int main() { std::cout << 6 * 7 << std::endl; }
"""

# Each step waits for the one before: the server names its display when it serves, and a window manager says so on the root window.
DESKTOP = """
set -e
mkfifo ready
Xvnc -displayfd 3 -geometry 1280x800 -SecurityTypes None -localhost 3>ready >Xvnc.log 2>&1 &
read -r number <ready
export DISPLAY=:$number
icewm >icewm.log 2>&1 &
until xprop -root _NET_SUPPORTING_WM_CHECK | grep -F 'window id'; do sleep 0.1; done
xterm -e 'echo shown >shown; exec sleep 600' >xterm.log 2>&1 &
xdotool search --sync --onlyvisible --class xterm
xdpyinfo | grep dimensions
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("images") / "home"
    home.mkdir(mode=0o700)
    (home / "images").mkdir()
    for name in CLASSES:
        build_image(name, "--rootfs", home / "images" / name)
    own = ",".join(f"{name}={name}" for name in CLASSES)
    with deployment(home, SANDBOXHUB_ENGINE="oci", SANDBOXHUB_RUNTIMES=",".join(RUNTIMES), SANDBOXHUB_CLASS_IMAGES=own) as server:
        yield server


@pytest.fixture
def lease(deployed: Server, runtime: str) -> Iterator[Callable[[str], Lease]]:
    taken: list[Lease] = []

    def make(name: str) -> Lease:
        if name not in CLASSES:
            pytest.skip(f"TEST_IMAGES does not name {name}")
        project = {} if name == "exec" else {"project": "images"}
        taken.append(deployed.api("acme").create(runtime=runtime, **{"class": name}, **project))
        return taken[-1]

    yield make
    for lease in taken:
        lease.end(purge=True)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_runs_in_its_own_image(lease: Callable[[str], Lease], name: str) -> None:
    box = lease(name)
    workdir = WORKDIRS[name]
    assert box.body["image"] == name
    assert box.sh("id -u; id -g; id -un; pwd; echo $HOME").split() == ["1000", "1000", "sandbox", workdir, workdir]
    assert box.sh("head -1 /etc/os-release").startswith('PRETTY_NAME="Debian')
    assert box.sh("printf 'Größe' | wc -m; locale charmap").split() == ["5", "UTF-8"]
    for path in ("/file", "/etc/file", "/usr/file", "/var/lib/file", "/.guest/file"):
        assert box.exec(command=f": >{path}")["exitCode"] != 0, path
    box.sh("echo ok >file && echo ok >/tmp/file && test -x /.guest/guest")
    assert box.sh("git --version && tmux -V && zsh -c 'echo $ZSH_NAME'")


def test_the_org_is_told_of_the_images_of_the_classes(deployed: Server) -> None:
    assert set(CLASSES) <= set(deployed.api("acme").get("/org").json()["images"])


def test_exec_analyses_data(lease: Callable[[str], Lease]) -> None:
    box = lease("exec")
    box.write("analysis.py", ANALYSIS.encode())
    assert box.sh("python3 analysis.py").split() == ["21", "PNG", "1.0"]
    assert box.read("table.xlsx")[:2] == b"PK"


def test_dev_builds_software(lease: Callable[[str], Lease]) -> None:
    box = lease("dev")
    box.write("program.cc", PROGRAM.encode())
    box.write("Makefile", b"program: program.cc\n\tc++ -O2 -o $@ $<\n")
    assert box.sh("make -s && ./program") == "42\n"
    assert box.sh("node -p '6 * 7'") == "42\n"
    assert box.sh("npm --version && cmake --version && gdb --version && python3 -m venv --help")
    assert (
        box.sh("git init -q . && git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m first && git log --oneline | wc -l")
        == "1\n"
    )
    assert box.sh("tmux -u new-session -d -s one zsh && tmux list-sessions -F '#S'") == "one\n"


def test_desktop_shows_windows(lease: Callable[[str], Lease]) -> None:
    box = lease("desktop")
    box.write("desktop.sh", DESKTOP.encode())
    told = box.sh("sh desktop.sh", timeoutSec=100)
    assert "window id" in told and "1280x800" in told
    assert box.read("shown") == b"shown\n"
