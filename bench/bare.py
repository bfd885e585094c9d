"""The baseline: the runtime's own command line, as a script would use it. Blocking calls."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import IO, Any

from sandboxes.engine.oci.cgroups import Cgroups
from sandboxes.engine.oci.config import TENANT_ID

WORKDIR = "/work"
_MOUNT = ("mount", "-t", "ext4", "-o", "loop,nosuid,nodev,noinit_itable")
_CHUNK = 64 << 10
_FLAGS = {"gvisor": ("--network=none", "--overlay2=none", "--platform=systrap"), "runc": ()}


class BareFailed(Exception):
    """A command of the baseline failed; the text has its error output."""


class Pty:
    """This end of a terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def until(self, mark: bytes) -> None:
        """Read until ``mark`` was shown."""
        seen = b""
        while mark not in seen:
            seen = seen[-len(mark) :] + os.read(self._fd, _CHUNK)

    def echo(self) -> float:
        """Seconds from a keystroke until it is shown."""
        began = perf_counter()
        os.write(self._fd, b"x")
        os.read(self._fd, _CHUNK)
        return perf_counter() - began


class Bare:
    """Containers of one runtime, of the same bundle as a sandbox of the product's but with ``sleep infinity`` as first process.

    As root each has the same bounded disk as a sandbox: an ext4 file system in a sparse file, copied from a formatted template.
    """

    def __init__(self, runtime: str, program: Path, bundle: dict[str, Any], template: Path | None, home: Path, cgroups: Cgroups) -> None:
        self._bundle = bundle
        self._template = template
        self._home = home
        self._cgroups = cgroups
        self._rootless = os.geteuid() != 0
        self._started: list[str] = []
        home.mkdir()
        flags = [*_FLAGS[runtime], *(("--rootless", "--ignore-cgroups") if self._rootless and runtime == "gvisor" else ())]
        self._user = [] if self._rootless else ["--user", f"{TENANT_ID}:{TENANT_ID}"]
        self._command = [str(program), "--root", str(home / "state"), *flags]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115

    def prepare(self, name: str) -> None:
        """What a container needs before its runtime is asked: the bundle and the disk."""
        directory, workdir = self._home / name, self._home / name / "workdir"
        workdir.mkdir(parents=True)
        if self._template is not None:
            image = self._home / f"{name}.img"
            self._run(["cp", "--sparse=always", "--reflink=auto", str(self._template), str(image)])
            self._run([*_MOUNT, str(image), str(workdir)])
        config = copy.deepcopy(self._bundle)
        config["process"]["args"] = ["sleep", "infinity"]
        (mount,) = (mount for mount in config["mounts"] if mount["destination"] == WORKDIR)
        mount["source"] = str(workdir)
        if "cgroupsPath" in config["linux"]:
            config["linux"]["cgroupsPath"] = self._cgroups.path(name)
        (directory / "config.json").write_text(json.dumps(config))
        self._started.append(name)

    def start(self, name: str) -> None:
        bundle = ["--bundle", str(self._home / name)]
        if self._rootless:  # rootless, runsc knows no create
            self._run([*self._command, "run", "--detach", *bundle, name])
        else:
            self._run([*self._command, "create", *bundle, name])
            self._run([*self._command, "start", name])

    def exec(self, name: str, *argv: str) -> None:
        """Run a command to its end, taking all of its output."""
        self.take(name, *argv)

    def take(self, name: str, *argv: str) -> int:
        """Run a command; the number of bytes that it wrote."""
        with self._exec(name, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            buffer, count = memoryview(bytearray(_CHUNK)), 0
            while got := process.stdout.readinto(buffer):  # type: ignore[attr-defined]
                count += got
            self._check(process, argv)
        return count

    def give(self, name: str, size: int, *argv: str) -> None:
        """Run a command with ``size`` bytes of input."""
        with self._exec(name, argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            chunk, left = bytes(_CHUNK), size
            with contextlib.suppress(BrokenPipeError):  # its end tells why
                while left:
                    left -= process.stdin.write(memoryview(chunk)[:left])
            process.stdin.close()
            self._check(process, argv)

    @contextlib.contextmanager
    def terminal(self, name: str, *argv: str) -> Iterator[Pty]:
        """A command on a terminal, as the runtime gives it to whoever calls it from one."""
        ours, theirs = os.openpty()
        flags = ["--tty"] if "--platform=systrap" not in self._command else []  # runsc looks at what it is called with
        command = [*self._command, "exec", *flags, *self._user, name, *argv]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        try:
            yield Pty(ours)
        finally:
            os.close(ours)
            process.terminate()
            process.wait()

    def delete(self, name: str) -> None:
        self._started.remove(name)
        self._run([*self._command, "delete", "--force", name])
        self._cgroups.remove(name)
        if self._template is not None:
            self._run(["umount", str(self._home / name / "workdir")])
            (self._home / f"{name}.img").unlink()

    def close(self) -> None:
        """Delete what is left, as far as that is possible."""
        for name in list(self._started):
            try:
                self.delete(name)
            except BareFailed as error:
                print(f"bench: {error}", file=sys.stderr)
        self._log.close()

    def _exec(self, name: str, argv: Sequence[str], *, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._command, "exec", *self._user, name, *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=self._fresh_log(),
            bufsize=0,
            close_fds=False,
        )

    def _run(self, command: list[str]) -> None:
        # Its output goes to a file: a container keeps the pipes that its runtime was started with.
        log = self._fresh_log()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=False)
        self._check(process, command)

    def _check(self, process: subprocess.Popen[bytes], command: Sequence[str]) -> None:
        # No timeout: with one, Popen.wait polls in ever longer steps.
        if process.wait() != 0:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip()
            raise BareFailed(f"{' '.join(command)} ended with {process.returncode}: {said}")

    def _fresh_log(self) -> IO[bytes]:
        self._log.seek(0)
        self._log.truncate()
        return self._log
