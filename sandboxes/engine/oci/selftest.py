"""The proof that a runtime works on this host: a real sandbox, a real command in it. Nothing that a version says replaces it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.oci.config import HOST_IMAGE, TENANT_ID
from sandboxes.engine.oci.locks import Locks
from sandboxes.engine.oci.sandboxes import Sandboxes
from sandboxes.engine.oci.streams import Streams
from sandboxes.engine.tasks import finish
from sandboxes.errors import EngineError, SandboxError
from sandboxes.guest import Command, Guest, run

_LIMITS = Limits(memory=256 << 20, cpus=1.0, pids=64, disk=64 << 20)
_WORKDIR = "/work"
_TIMEOUT = 60.0  # seconds a step
_SENT = b"proof\n"


async def prove(sandboxes: Sandboxes, streams: Streams, locks: Locks, runtime: str) -> str:
    """Run a sandbox through its whole life; returns the runtime's version.

    Raises ``EngineError``: the step that failed, why, and what to do.
    """
    program = sandboxes.runtimes[runtime]
    name = f"t-{secrets.token_hex(12)}-0000"
    step = "finding it"
    try:
        version = await program.version()
        async with locks.hold(name):
            try:
                step = "starting a sandbox"
                _, first = await sandboxes.launch(Spec(name, runtime, HOST_IMAGE, _WORKDIR, limits=_LIMITS))
                streams.keep(name, first)
                step = "reaching its guest"
                guest = await Guest.open(await streams.connect(name, program), timeout=_TIMEOUT)
                try:
                    step = "running a command"
                    uid = 0 if sandboxes.config.rootless else TENANT_ID
                    await _expect(guest, f'[ "$(id -u)" = {uid} ] && exit 7', code=7)
                    step = "writing a file"
                    await guest.write(b"proof", _chunks())
                    await _expect(guest, "read -r found < proof && [ $found = proof ]", code=0)
                finally:
                    guest.close()
                step = "ending the sandbox"
            finally:
                streams.drop(name)
                await finish(sandboxes.remove(name))
    except (SandboxError, OSError) as error:
        reason = error.detail if isinstance(error, SandboxError) else str(error)
        advice = (
            "Set the path of the program."
            if isinstance(error, FileNotFoundError | PermissionError)
            else _advice(runtime, reason, rootless=sandboxes.config.rootless)
        )
        raise EngineError(f"The runtime {runtime} ({program.program}) failed its self-test at {step}: {reason} {advice}".strip()) from error
    return version or "unversioned build"


async def _expect(guest: Guest, script: str, *, code: int) -> None:
    command = Command([b"/bin/sh", b"-c", script.encode()], _WORKDIR.encode(), {b"PATH": b"/usr/bin:/bin"})
    result = await run(guest, command, timeout=_TIMEOUT)
    if result.code != code:
        said = result.start_error or result.stderr.decode(errors="replace").strip() or "no output"
        raise EngineError(f"`{script}` ended with {result.code}, not {code} ({said})")


async def _chunks() -> AsyncIterator[bytes]:
    yield _SENT


def _advice(runtime: str, reason: str, *, rootless: bool) -> str:
    """What to do about the failures that are known."""
    low = reason.lower()
    if "sidecar" in low:
        return "This build of runsc needs its release's other programs beside it: build the version that script/setup pins."
    if "is not installed" in low:
        return "Install the package that has it (e2fsprogs, mount)."
    if rootless and (blocked := _user_namespaces_blocked()):
        return blocked
    if "loop" in low:
        return "A bounded disk needs loop devices: load the module `loop`; a container needs /dev/loop* and CAP_SYS_ADMIN."
    if "cgroup" in low and not rootless:
        return "Limits need writable cgroups: give the server's container the host's, or run the server as an ordinary user."
    if runtime == "gvisor" and ("flag provided but not defined" in low or "platform" in low or "exit 7" in low or "id -u" in low):
        return "This runsc may be too old (Debian's is of 2022): build the version that script/setup pins."
    return ""


def _user_namespaces_blocked() -> str:
    """Which setting of the kernel keeps an ordinary user from making a user namespace; empty when none is known to."""

    def setting(path: str) -> str:
        try:
            return (Path("/proc/sys") / path).read_text().strip()
        except OSError:
            return ""

    if setting("user/max_user_namespaces") == "0":
        return "User namespaces are switched off: sysctl user.max_user_namespaces=10000, or run the server as root."
    if setting("kernel/unprivileged_userns_clone") == "0":
        return "User namespaces are closed to ordinary users: sysctl kernel.unprivileged_userns_clone=1, or run the server as root."
    if setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "AppArmor closes user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run the server as root."
    return ""
