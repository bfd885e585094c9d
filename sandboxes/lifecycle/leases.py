"""Take, resume and end a lease: the use cases behind the API, the admin and the reaper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from sandboxes import errors, policy
from sandboxes.lifecycle import transitions
from sandboxes.lifecycle.current import call
from sandboxes.lifecycle.hub import Hub
from sandboxes.lifecycle.processes import place, this_process
from sandboxes.lifecycle.threads import in_thread
from sandboxes.lifecycle.transitions import Plan, Wanted
from sandboxes.models import PUBLIC, Org, Sandbox, State, Volume

_POLL = 0.2  #: seconds between two looks at a row that another process moves


def create(org: Org, wanted: Wanted) -> Sandbox:
    """Lease a sandbox, or resume the one that holds the project (contract.md section 6, rows 1 to 3, 33 and 35).

    Returns it running, or pending when its start takes longer than SANDBOXHUB_START_WAIT. Raises ``StartFailed``, ``ProjectBusy``,
    ``CeilingReached`` or ``Conflict``.
    """
    slot_until = time.monotonic() + policy.SLOT_WAIT
    while True:
        engine, host = place()
        taken = transitions.take(org, wanted, engine=engine, host=host, worker=this_process())
        if taken.created or not (taken.sandbox.attached and taken.sandbox.state in (State.ENDING, State.ERROR)):
            break
        remaining = slot_until - time.monotonic()
        if remaining <= 0:
            raise errors.ProjectBusy(f"the last sandbox of project {wanted.project}, {taken.sandbox.pk}, is still ending; try again")
        call(_until_released, taken.sandbox.pk, remaining)
    sandbox = taken.sandbox
    if not taken.created:
        _check_resumable(sandbox, wanted)
        transitions.renew(sandbox, wanted.ttl)
    if sandbox.state == State.PENDING:
        plan = transitions.plan(sandbox) if taken.created else None
        call(_until_started, sandbox.pk, plan, settings.SANDBOXHUB_START_WAIT)
    sandbox.refresh_from_db()
    if sandbox.state == State.ERROR:
        raise errors.StartFailed(sandbox.error)
    if sandbox.state not in PUBLIC:
        raise errors.Conflict("the lease was ended while it started")
    return sandbox


def _check_resumable(sandbox: Sandbox, wanted: Wanted) -> None:
    if sandbox.state not in PUBLIC:
        raise errors.Conflict("the lease of this idempotency key has ended")
    if sandbox.klass != wanted.klass.name:
        raise errors.ProjectBusy(
            f"project {sandbox.project_slug} is held by {sandbox.pk}, of class {sandbox.klass}", members={"id": sandbox.pk}
        )


def resume(sandbox: Sandbox, ttl: int | None) -> Sandbox:
    """Answer a lease call that names a running lease: it stays as it is, and may get longer."""
    transitions.renew(sandbox, ttl)
    sandbox.refresh_from_db()
    return sandbox


def end(sandbox: Sandbox, *, reason: str, actor: str, purge: bool = False, wait: float = policy.END_WAIT) -> None:
    """End a lease: it is gone to its org at once; the call waits for its sandbox to be gone, ``wait`` seconds at most.

    Raises ``NotFound`` when it is ending already.
    """
    if not transitions.begin_end(sandbox, reason=reason, actor=actor, purge=purge):
        raise errors.NotFound("no such sandbox")
    if _is_here(sandbox):
        call(_end_here, sandbox.pk, wait)


def _is_here(sandbox: Sandbox) -> bool:
    """Whether this process may end it: to any other host, nothing of it is to be seen, which is not the same as gone."""
    return (sandbox.engine, sandbox.host) == place()


@dataclass(frozen=True)
class Ends:
    """What has become of the leases that ``end_all`` was given, by id."""

    gone: list[str] = field(default_factory=list)  #: observed gone
    ending: list[str] = field(default_factory=list)  #: takes longer; or the host that runs it ends it
    failed: dict[str, str] = field(default_factory=dict)  #: the first attempt failed, and why; it is tried again for ever
    already: list[str] = field(default_factory=list)  #: somebody else ended it before

    @property
    def begun(self) -> set[str]:
        """Those that this call ended."""
        return {*self.gone, *self.ending, *self.failed}


def end_all(sandboxes: Sequence[Sandbox], *, reason: str, actor: str, purge: bool = False, wait: float = policy.END_WAIT) -> Ends:
    """End many leases at once; the call waits for all of them together, ``wait`` seconds at most."""
    ends = Ends()
    begun = []
    for sandbox in sandboxes:
        if transitions.begin_end(sandbox, reason=reason, actor=actor, purge=purge):
            begun.append(sandbox)
        else:
            ends.already.append(sandbox.pk)
    here = [sandbox.pk for sandbox in begun if _is_here(sandbox)]
    unusable = ""
    if here:
        try:
            call(_end_all_here, here, wait)
        except errors.EngineError as error:  # this process has no engine that works; one that has will end them
            unusable = error.detail
    rows = Sandbox.objects.filter(pk__in=[sandbox.pk for sandbox in begun])
    for pk, state, end_error in rows.values_list("pk", "state", "end_error"):
        if state == State.ENDED:
            ends.gone.append(pk)
        elif end_error or (unusable and pk in here):
            ends.failed[pk] = end_error or unusable
        else:
            ends.ending.append(pk)
    return ends


def delete_volume(volume: Volume, *, actor: str) -> None:
    """Delete a volume that no lease holds, and its data. Raises ``Conflict``."""
    if not transitions.begin_delete_volume(volume, actor=actor):
        raise errors.Conflict(f"volume {volume.name} is held by a sandbox of project {volume.project.slug}; end it first")
    call(finish_delete_volume, volume.name)


async def finish_delete_volume(hub: Hub, name: str) -> None:
    await hub.engine.delete_volume(name)
    await in_thread(transitions.volume_deleted, name)


async def _until_started(hub: Hub, pk: str, plan: Plan | None, timeout: float) -> None:
    """``plan``: of a lease that is this call's to start."""
    if plan is not None:
        hub.begin_start(pk, plan)
    if hub.starting(pk):
        await hub.wait_started(pk, timeout)
    else:
        await _until(pk, lambda state, _: state != State.PENDING, timeout)


async def _until_released(hub: Hub, pk: str, timeout: float) -> None:
    await hub.wait_ended(pk, timeout)
    await _until(pk, lambda _, attached: not attached, timeout)


async def _end_here(hub: Hub, pk: str, timeout: float) -> None:
    hub.begin_end(pk)
    await hub.wait_ended(pk, timeout)


async def _end_all_here(hub: Hub, pks: Sequence[str], timeout: float) -> None:
    await asyncio.wait([hub.begin_end(pk) for pk in pks], timeout=timeout)


async def _until(pk: str, good: Callable[[str, bool], bool], timeout: float) -> None:
    """Wait until another process has moved the row so that ``good(state, attached)``, ``timeout`` seconds at most."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout
    while True:
        row = await in_thread(lambda: Sandbox.objects.filter(pk=pk).values_list("state", "attached").first())
        if row is None or good(*row) or loop.time() >= until:
            return
        await asyncio.sleep(_POLL)
