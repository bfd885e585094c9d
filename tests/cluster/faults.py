"""What can go wrong on a node, done to the one of ``script/cluster``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

COMPONENTS = ("containerd", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Node:
    state: Path  #: the directory that ``script/cluster`` keeps it in

    @classmethod
    def of(cls, kubeconfig: Path) -> Node | None:
        """The node whose admin's kubeconfig that is; None when it is another cluster's."""
        state = kubeconfig.resolve().parent.parent
        return cls(state) if (state / "init.pid").exists() else None

    def pid(self, component: str) -> int:
        """The process of ``component``, which must run. It has another number on the node itself."""
        assert component in COMPONENTS
        namespace = os.readlink(f"/proc/{(self.state / 'init.pid').read_text().strip()}/ns/pid")
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().split(b"\0")  # `etcd ...` or `kubenode kubelet ...`
                if component.encode() in command[:2] and os.readlink(process / "ns/pid") == namespace:
                    return int(process.name)
            except OSError:  # it ended meanwhile
                continue
        raise ProcessLookupError(component)

    def kill(self, component: str) -> None:
        """Kill it; the node starts it again at once."""
        os.kill(self.pid(component), signal.SIGKILL)

    @contextmanager
    def frozen(self, component: str) -> Iterator[None]:
        """It stands still: its connections stay open, and nothing is answered."""
        pid = self.pid(component)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def stopped(self, component: str) -> Iterator[None]:
        """It is killed, and not started again before the block ends: its connections break, and new ones are refused."""
        hold = self.state / "hold" / component
        hold.touch()
        try:
            self.kill(component)
            yield
        finally:
            hold.unlink()

    def processes(self, pod_uid: str) -> set[int]:
        """The processes of a pod, or with ``*`` of all, that the kernel knows, in every cgroup hierarchy: empty when it is really gone."""
        name = (self.state / "cgroup").read_text().strip()
        found: set[int] = set()
        for hierarchy in (_CGROUPS, *_CGROUPS.iterdir()):  # version 2 has one, version 1 has many
            for directory, _, _ in os.walk(hierarchy / name / "kubepods"):  # passes over what goes meanwhile
                if fnmatch(directory, f"*/pod{pod_uid}*"):
                    try:
                        found.update(map(int, (Path(directory) / "cgroup.procs").read_text().split()))
                    except OSError:  # that cgroup is gone
                        continue
        return found
