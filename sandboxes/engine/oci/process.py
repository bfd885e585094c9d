"""Programs of the host, run from the event loop.

Not ``asyncio.create_subprocess_exec``: its ``wait`` returns only when every copy of the pipes is closed, and a sandbox keeps
the ones that it was started with. Here outputs are files, and a process has ended when it has ended.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from sandboxes.engine.tasks import finish

_OUTPUT_LIMIT = 64 << 10

#: All that a runtime's command line gets to see of the server's environment.
_PASSED = ("GVISOR_SIDECAR_BINARIES_DIR",)


def environment() -> dict[str, str]:
    """Fixed, whatever the server's own is."""
    found = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    found.update({name: os.environ[name] for name in _PASSED if name in os.environ})
    return found


@dataclass(frozen=True)
class Finished:
    code: int | None  #: None: it was killed at its deadline
    output: str  #: stdout and stderr, unless they went elsewhere

    @property
    def ok(self) -> bool:
        return self.code == 0


class Child:
    """A running process, made by ``spawn``. Its end is noticed, and it is reaped, by the event loop."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.exited = asyncio.Event()
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended)

    @property
    def code(self) -> int | None:
        """Of one that has exited: its exit code, or minus the signal that killed it."""
        return self._process.returncode

    def kill(self) -> None:
        """Without effect on one that has exited."""
        if not self.exited.is_set():
            self._process.kill()

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()  # for what is there already
        self.exited.set()


def spawn(argv: Sequence[str], *, stdin: int, stdout: int, stderr: int) -> Child:
    """Start ``argv``. In a session of its own: a Ctrl-C meant for the server is not meant for it."""
    # By hand: asyncio would, before Python 3.12, start a thread for every process to wait for its end.
    return Child(
        subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=environment(), cwd="/", start_new_session=True)  # noqa: S603
    )


async def run(argv: Sequence[str], *, timeout: float, stdio: int | None = None, log: int | None = None) -> Finished:
    """Run ``argv`` to its end, at most ``timeout`` seconds. Cancelled, it ends the process first.

    ``stdio`` becomes stdin and stdout, ``log`` stderr, also of whatever ``argv`` leaves running.
    Raises ``OSError`` when it cannot be started.
    """
    output = os.memfd_create("output", os.MFD_CLOEXEC)
    try:
        child = spawn(
            argv,
            stdin=subprocess.DEVNULL if stdio is None else stdio,
            stdout=output if stdio is None else stdio,
            stderr=output if log is None else log,
        )
        try:
            async with asyncio.timeout(timeout):  # before Python 3.12, wait_for may lose a cancellation
                await child.exited.wait()
            code = child.code
        except TimeoutError:
            code = None
        finally:
            child.kill()
            await finish(child.exited.wait())
        return Finished(code, read_output(output))
    finally:
        os.close(output)


def read_output(fd: int) -> str:
    """The end of what was written to an output file."""
    size = os.fstat(fd).st_size
    return os.pread(fd, _OUTPUT_LIMIT, max(0, size - _OUTPUT_LIMIT)).decode(errors="replace")
