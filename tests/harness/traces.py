"""What sandboxes of one deployment leave on the host: found without the product's help."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

_CONTAINER = re.compile(r"[a-z]-[0-9a-f]{24}-[0-9]{4}")


class Traces:
    """``home`` is the deployment's SANDBOXHUB_HOME."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()

    @property
    def instances(self) -> list[str]:
        """The ids that the deployment's parts carry on this host; one, once it has started."""
        base = self.home / "oci"
        known = ("templates", "rootfs", "guests")
        return [entry.name for entry in base.iterdir() if entry.name not in known] if base.is_dir() else []

    def of_sandboxes(self) -> list[str]:
        """Containers, their directories and disks, mounts, loop devices and cgroups. Empty when no lease is held; volumes do not count."""
        found = [str(path) for instance in self.instances for path in self._directories(instance)]
        found += [f"mount {target}" for target in self.mounts()]
        found += [f"loop device of {image}" for image in self.loop_devices()]
        return found + [f"cgroup {path}" for instance in self.instances for path in self.cgroups(instance)]

    def of_processes(self) -> list[str]:
        """Processes that work for the deployment. Empty when no lease is held and no server runs."""
        return [f"process {pid}: {line}" for pid, line in self.processes().items()]

    def of_volume(self, name: str) -> bool:
        """Whether there is a volume of that name."""
        return bool(list(self.home.glob(f"oci/*/volumes/{name}")))

    def init_pid(self, container: str) -> int:
        """The first process of a sandbox, seen from the host."""
        (pid,) = [int(path.read_text()) for path in self.home.glob(f"oci/*/bundles/{container}/pid")]
        return pid

    def _directories(self, instance: str) -> list[Path]:
        mine = self.home / "oci" / instance
        places = [mine / "bundles", mine / "disks", mine / "mnt"]
        for state in (Path("/run") / f"sandboxhub-{instance}", self._user_state(instance), self.home / "run" / instance):
            places += [state / "gvisor", state / "runc"]
        entries = [entry for place in places if place.is_dir() for entry in place.iterdir()]
        return [entry for entry in entries if _CONTAINER.search(entry.name)]

    @staticmethod
    def _user_state(instance: str) -> Path:
        return Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent")) / f"sandboxhub-{instance}"

    def mounts(self) -> list[str]:
        targets = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [target for target in targets if target.startswith(f"{self.home}/")]

    def loop_devices(self) -> list[str]:
        found = []
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            try:
                image = path.read_text().strip()
            except OSError:
                continue  # let go of meanwhile
            if image.startswith(f"{self.home}/"):
                found.append(image)
        return found

    def cgroups(self, instance: str) -> list[Path]:
        """At the top of each hierarchy. Not deeper: a walk through all cgroups meets those of others that end meanwhile."""
        top = Path("/sys/fs/cgroup")
        found = [*top.glob(f"sandboxhub-{instance}/*"), *top.glob(f"*/sandboxhub-{instance}/*")]
        return [path for path in found if path.is_dir()]

    def processes(self) -> dict[int, str]:
        """Those whose command line names the home or the instance."""
        marks = [str(self.home), *(f"sandboxhub-{instance}" for instance in self.instances)]
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue  # ended meanwhile
                if any(mark in line for mark in marks):
                    found[int(entry.name)] = line
        return found

    def clean(self) -> None:
        """Take away what a failed test left, so that it harms nobody else."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for instance in self.instances:
            for group in self.cgroups(instance):
                for pid in (group / "cgroup.procs").read_text().split():
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
        for target in sorted(self.mounts(), reverse=True):
            subprocess.run(["umount", "--lazy", target], check=False)
        for instance in self.instances:
            for group in sorted(self.cgroups(instance), reverse=True):
                subprocess.run(["rmdir", group], check=False, stderr=subprocess.DEVNULL)
