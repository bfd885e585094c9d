"""The command lines of runsc and runc."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sandboxes.engine.oci import process
from sandboxes.engine.oci.config import ANY_NAME, GUEST_PROGRAM, check_name
from sandboxes.errors import EngineError

_START_TIMEOUT = 60.0
_DELETE_TIMEOUT = 20.0


@dataclass(frozen=True)
class RuntimeProgram:
    """One runtime of this deployment: ``state`` is its own directory for what runs."""

    name: str  #: ``gvisor`` or ``runc``
    program: Path
    state: Path
    rootless: bool

    async def start(self, name: str, bundle: Path, pid_file: Path, *, stdio: int, log: int) -> process.Finished:
        """Start the first process of ``bundle`` with ``stdio`` as its stdin and stdout. What went wrong is in the file ``log``."""
        # Not create and start: one program less to run, and rootless runsc knows only this.
        command = self._command("run", name, "--detach", "--bundle", str(bundle), "--pid-file", str(pid_file), name)
        return await process.run(command, timeout=_START_TIMEOUT, stdio=stdio, log=log)

    async def delete(self, name: str) -> process.Finished:
        return await process.run(self._command("delete", name, "--force", name), timeout=_DELETE_TIMEOUT)

    def connect_command(self, name: str) -> list[str]:
        """Runs ``guest connect`` inside, as who the guest is. A ``--`` would become the program's name under runsc."""
        return self._command("exec", name, "--cwd", "/", name, GUEST_PROGRAM, "connect")

    async def version(self) -> str:
        """What the program says of itself; a Go build of runsc knows no version and is told by its specification's."""
        told = await process.run([str(self.program), "--version"], timeout=10)
        if not told.ok:
            raise EngineError(f"{self.program} --version failed: {last_error(told.output)}")
        first = told.output.split("\n", 1)[0].rpartition(" ")[2].strip()
        return "" if first == "VERSION_MISSING" else first

    def markers(self, name: str) -> tuple[str, str]:
        """What the arguments of this runtime's processes for ``name`` hold."""
        return str(self.state), name

    def names(self) -> set[str]:
        """Sandboxes that the runtime keeps state of: what its ``list`` reads, and what it cannot parse any more."""
        return {name for path in self._entries() for name in ANY_NAME.findall(path.name)}

    def knows(self, name: str) -> bool:
        return any(name in path.name for path in self._entries())

    def forget(self, name: str) -> None:
        """Remove the runtime's state of a sandbox that has no process any more and that it could not delete itself."""
        check_name(name)
        for path in self._entries():
            if name in path.name:
                _remove(path)

    def _entries(self) -> list[Path]:
        try:
            return list(self.state.iterdir())
        except FileNotFoundError:
            return []

    def _command(self, verb: str, name: str, *arguments: str) -> list[str]:
        check_name(name)
        flags: list[str] = ["--root", str(self.state)]
        if self.name == "gvisor":
            # The root file system is read-only, so there is nothing to overlay. The other platforms need what a host may not have.
            flags += ["--network=none", "--overlay2=none", "--platform=systrap"]
            if self.rootless:
                flags += ["--rootless", "--ignore-cgroups"]
        return [str(self.program), *flags, verb, *arguments]


def last_error(log: str) -> str:
    """The line that says most, in the words of the runtime: the last one that names an error, or else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    telling = [line for line in lines if re.search(r"error|fail|cannot|denied|refused|panic", line, re.IGNORECASE)]
    line = (telling or lines)[-1]
    quoted = re.search(r'msg="((?:[^"\\]|\\.)*)"', line)
    if quoted:
        line = quoted[1].replace('\\"', '"')
    return line[:500]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for child in path.iterdir():
            _remove(child)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
