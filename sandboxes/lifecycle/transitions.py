"""The only writer of a lease's state: each arrow of design.md section 2 is one conditional UPDATE here.

::

    pending -> running | error | ending      running -> error | ending
    error   -> ending                        ending  -> ended

All functions are synchronous, short, and hold no transaction when they return. A function that returns ``bool`` says whether it was the
one that moved the lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone

from sandboxes import errors, policy
from sandboxes.engine.base import Limits, Running, Spec
from sandboxes.models import COUNTED, PUBLIC, Event, Org, Project, Sandbox, State, Volume

_START_MOST = 180.0  #: seconds, beside the wait for a node, after which nobody who lives starts a lease any more: more than an engine takes
_RETRY_MOST = 60.0  #: seconds between two attempts to end a sandbox, at most


@dataclass(frozen=True)
class Wanted:
    """A checked request for a lease."""

    klass: policy.SandboxClass
    project: str  #: slug; empty for class exec
    image: str
    runtime: str
    ttl: int | None  #: seconds as asked
    actor: str
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Taken:
    """The lease that answers a request: a new one, or the one that stands."""

    sandbox: Sandbox
    created: bool


@dataclass(frozen=True)
class Plan:
    """What to start."""

    spec: Spec
    volume_size: int  #: bytes; 0: it has no volume


def record(kind: str, *, org_id: int | None, sandbox: str = "", actor: str, reason: str = "") -> None:
    """Append an event to the history."""
    Event.objects.create(kind=kind, org_id=org_id, sandbox=sandbox, actor=actor, reason=reason)


def take(org: Org, wanted: Wanted, *, engine: str, host: str, worker: str) -> Taken:
    """Take a new lease, or find the one that holds the project or the idempotency key.

    The org's row is locked meanwhile, so races of one org have one winner and the ceiling is exact. The row is complete before any engine
    is touched.
    """
    with transaction.atomic():
        Org.objects.select_for_update().get(pk=org.pk)
        if wanted.idempotency_key is not None:
            known = Sandbox.objects.filter(org=org, idempotency_key=wanted.idempotency_key).first()
            if known is not None:
                return Taken(known, created=False)
        project = volume = None
        if wanted.klass.attached:
            project, _ = Project.objects.get_or_create(org=org, slug=wanted.project)
            holder = Sandbox.objects.filter(project=project, attached=True).first()
            if holder is not None:
                return Taken(holder, created=False)
            volume = _volume(org, project, engine=engine, host=host)
        else:
            _check_ceiling(org)
        now = timezone.now()
        sandbox = Sandbox.objects.create(
            org=org,
            project=project,
            project_slug=wanted.project,
            attached=project is not None,
            volume=volume,
            actor=wanted.actor,
            idempotency_key=wanted.idempotency_key,
            klass=wanted.klass.name,
            image=wanted.image,
            requested_runtime=wanted.runtime,
            engine=engine,
            host=host,
            worker=worker,
            created_at=now,
            last_used_at=now,
            expires_at=now + timedelta(seconds=policy.ttl(wanted.ttl, wanted.klass)),
            retry_at=now + _start_most(),
        )
        record("leased", org_id=org.pk, sandbox=sandbox.pk, actor=wanted.actor)
    return Taken(sandbox, created=True)


def _volume(org: Org, project: Project, *, engine: str, host: str) -> Volume:
    volume, _ = Volume.objects.get_or_create(
        project=project,
        defaults={
            "org": org,
            "name": policy.volume_name(org.slug, project.slug),
            "engine": engine,
            "host": host,
            "size": settings.SANDBOXHUB_VOLUME_SIZE,
        },
    )
    if volume.deleting:
        raise errors.ProjectBusy(f"the volume of project {project.slug} is being deleted")
    if (volume.engine, volume.host) != (engine, host):
        raise errors.ProjectBusy(f"the volume of project {project.slug} is held by another host of this deployment")
    Volume.objects.filter(pk=volume.pk).update(last_leased_at=timezone.now())
    return volume


def ceiling(org: Org) -> int:
    return settings.SANDBOXHUB_EXEC_CEILING if org.exec_ceiling is None else org.exec_ceiling


def counted(org: Org) -> int:
    """How many of the org's leases count for its ceiling."""
    return Sandbox.objects.filter(org=org, klass="exec", state__in=COUNTED).count()


def _check_ceiling(org: Org) -> None:
    most = ceiling(org)
    if counted(org) >= most:
        raise errors.CeilingReached(f"this org holds {most} sandboxes of class exec, its ceiling; end one or wait")


def renew(sandbox: Sandbox, ttl: int | None) -> None:
    """Lengthen a lease that is resumed; never shorten it."""
    now = timezone.now()
    until = policy.renewed(sandbox.expires_at.timestamp(), sandbox.created_at.timestamp(), now.timestamp(), ttl)
    expires = sandbox.created_at + timedelta(seconds=until - sandbox.created_at.timestamp())
    Sandbox.objects.filter(pk=sandbox.pk, state__in=PUBLIC, expires_at__lt=expires).update(expires_at=expires)


def touch(sandbox: Sandbox) -> None:
    """Count as used now. At most one write a second a lease, however many commands it runs."""
    now = timezone.now()
    if now - sandbox.last_used_at >= timedelta(seconds=1):
        sandbox.last_used_at = now
        Sandbox.objects.filter(pk=sandbox.pk, last_used_at__lt=now).update(last_used_at=now)


def _start_most() -> timedelta:
    return timedelta(seconds=_START_MOST + settings.SANDBOXHUB_SCHEDULE_WAIT)


def claim_start(pk: str, *, dead: str, worker: str) -> bool:
    """Take over a start that its process (``dead``) did not live to finish."""
    until = timezone.now() + _start_most()
    return bool(Sandbox.objects.filter(pk=pk, state=State.PENDING, worker=dead).update(worker=worker, retry_at=until))


def plan(sandbox: Sandbox) -> Plan:
    """What to start for a lease. Asks the database for its org and volume unless they are loaded."""
    volume = sandbox.volume
    limits = Limits(
        memory=settings.SANDBOXHUB_MEMORY, cpus=settings.SANDBOXHUB_CPUS, pids=settings.SANDBOXHUB_PIDS, disk=settings.SANDBOXHUB_DISK
    )
    spec = Spec(
        name=sandbox.container,
        runtime=sandbox.requested_runtime,
        image=sandbox.image,
        workdir=sandbox.workdir,
        volume=volume.name if volume else None,
        limits=limits,
        labels={"org": sandbox.org.slug, "project": sandbox.project_slug, "lease": sandbox.pk, "class": sandbox.klass},
    )
    return Plan(spec, volume.size if volume else 0)


def started(name: str, running: Running) -> bool:
    """pending -> running."""
    pk, generation = policy.lease_of(name)
    return bool(
        Sandbox.objects.filter(pk=pk, generation=generation, state=State.PENDING).update(
            state=State.RUNNING, runtime=running.runtime, image=running.image, started_at=timezone.now(), worker="", retry_at=None
        )
    )


def failed(name: str, reason: str) -> bool:
    """pending or running -> error. The project stays held until ``released``."""
    pk, generation = policy.lease_of(name)
    now = timezone.now()
    with transaction.atomic():
        moved = Sandbox.objects.filter(pk=pk, generation=generation, state__in=(State.PENDING, State.RUNNING)).update(
            state=State.ERROR, error=reason, failed_at=now, worker="", retry_at=None, idempotency_key=None
        )
        if moved:
            org_id = Sandbox.objects.values_list("org_id", flat=True).get(pk=pk)
            record("failed", org_id=org_id, sandbox=pk, actor="system", reason=reason)
    return bool(moved)


def is_pending(name: str) -> bool:
    pk, generation = policy.lease_of(name)
    return Sandbox.objects.filter(pk=pk, generation=generation, state=State.PENDING).exists()


def released(name: str) -> bool:
    """A failed lease's sandbox is gone: its project is free."""
    pk, generation = policy.lease_of(name)
    return bool(Sandbox.objects.filter(pk=pk, generation=generation, state=State.ERROR, attached=True).update(attached=False))


def begin_end(sandbox: Sandbox, *, reason: str, actor: str, purge: bool = False, expired: bool = False) -> bool:
    """Any public state -> ending.

    ``purge`` is recorded on a lease that is ending already, too. ``expired``: only if it was not renewed meanwhile.
    """
    with transaction.atomic():
        rows = Sandbox.objects.filter(pk=sandbox.pk)
        unchanged = Q(expires_at=sandbox.expires_at) if expired else Q()
        moved = rows.filter(unchanged, state__in=PUBLIC).update(
            state=State.ENDING, end_reason=reason, purge=purge, worker="", retry_at=timezone.now()
        )
        if moved:
            record("ending", org_id=sandbox.org_id, sandbox=sandbox.pk, actor=actor, reason=reason)
        elif purge and rows.filter(state=State.ENDING, purge=False).update(purge=True):
            record("purge added", org_id=sandbox.org_id, sandbox=sandbox.pk, actor=actor, reason=reason)
    return bool(moved)


@dataclass(frozen=True)
class Ending:
    """What it takes to end a lease."""

    container: str
    volume: str | None  #: to be deleted, with its data


def ending(pk: str) -> Ending | None:
    """What is to be ended, or None when the lease is not ending.

    A purge first takes hold of the project, so that nobody leases the volume meanwhile.
    """
    sandbox = Sandbox.objects.select_related("volume").filter(pk=pk, state=State.ENDING).first()
    if sandbox is None:
        return None
    volume = sandbox.volume.name if sandbox.purge and sandbox.volume else None
    if volume and not sandbox.attached:
        try:
            with transaction.atomic():
                Sandbox.objects.filter(pk=pk).update(attached=True)
        except IntegrityError:  # a newer lease of the project holds the volume
            record("purge skipped", org_id=sandbox.org_id, sandbox=pk, actor="system", reason="a newer lease holds the volume")
            volume = None
    return Ending(sandbox.container, volume)


def ended(pk: str, *, purged: str | None) -> bool:
    """ending -> ended: what it held was observed gone."""
    with transaction.atomic():
        moved = Sandbox.objects.filter(pk=pk, state=State.ENDING).update(
            state=State.ENDED, attached=False, ended_at=timezone.now(), retry_at=None, end_error="", idempotency_key=None
        )
        if moved:
            if purged:
                Volume.objects.filter(name=purged).delete()
            org_id = Sandbox.objects.values_list("org_id", flat=True).get(pk=pk)
            record("ended", org_id=org_id, sandbox=pk, actor="system", reason="volume deleted" if purged else "")
    return bool(moved)


def end_failed(pk: str, reason: str) -> None:
    """Ending did not work yet: it is tried again, for ever, with back-off."""
    attempts = Sandbox.objects.values_list("end_attempts", flat=True).get(pk=pk)
    wait = min(_RETRY_MOST, 2.0 ** min(attempts, 10))
    Sandbox.objects.filter(pk=pk, state=State.ENDING).update(
        end_attempts=F("end_attempts") + 1, end_error=reason, retry_at=timezone.now() + timedelta(seconds=wait)
    )


def begin_delete_volume(volume: Volume, *, actor: str) -> bool:
    """Close a volume to new leases, unless one holds it."""
    with transaction.atomic():
        Org.objects.select_for_update().get(pk=volume.org_id)
        if Sandbox.objects.filter(project_id=volume.project_id, attached=True).exists():
            return False
        Volume.objects.filter(pk=volume.pk).update(deleting=True)
        record("volume deleting", org_id=volume.org_id, actor=actor, reason=volume.name)
    return True


def volume_deleted(name: str) -> None:
    """A volume's data are gone."""
    with transaction.atomic():
        volume = Volume.objects.filter(name=name, deleting=True).first()
        if volume is not None:
            record("volume deleted", org_id=volume.org_id, actor="system", reason=name)
            volume.delete()


@dataclass(frozen=True)
class Due:
    """What the clocks ask for on one host."""

    leases: list[tuple[Sandbox, str]]  #: to end, and why
    ending: list[str]  #: leases whose end is to be tried (again)
    volumes: list[str]  #: to be deleted


def due(engine: str, host: str) -> Due:
    """Everything that is due now, by index."""
    now = timezone.now()
    mine = Sandbox.objects.here(engine, host)
    expired = [(sandbox, "lease expired") for sandbox in mine.filter(state__in=PUBLIC, expires_at__lte=now)]
    seen = mine.filter(state=State.ERROR, failed_at__lte=now - timedelta(seconds=policy.ERROR_VISIBLE), expires_at__gt=now)
    return Due(
        leases=expired + [(sandbox, "failed") for sandbox in seen],
        ending=list(mine.filter(state=State.ENDING, retry_at__lte=now).values_list("pk", flat=True)),
        volumes=list(Volume.objects.filter(deleting=True, engine=engine, host=host).values_list("name", flat=True)),
    )
