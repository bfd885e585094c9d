"""What the control plane knows. ``sandboxes/lifecycle/transitions.py`` is the only writer of a lease's state."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from sandboxes import policy


def new_lease_id() -> str:
    return f"m_{secrets.token_hex(12)}"


def new_instance() -> str:
    return secrets.token_hex(6)


class Deployment(models.Model):
    """The one row that names this deployment. What runs is ours only if it carries ``instance``."""

    instance = models.CharField(max_length=12, default=new_instance, editable=False)

    def __str__(self) -> str:
        return self.instance

    @classmethod
    def instance_id(cls) -> str:
        return cls.objects.get_or_create(pk=1)[0].instance


class Org(models.Model):
    """A tenant. It holds leases, projects, volumes and keys, and sees nothing of any other org."""

    slug = models.SlugField(max_length=48, unique=True)
    exec_ceiling = models.PositiveIntegerField(
        null=True, blank=True, help_text="Most leases of class exec at once; empty: the deployment's."
    )
    runtimes = models.JSONField(default=list, blank=True, help_text="Runtimes that it may ask for; empty: all that are offered.")
    images = models.JSONField(default=list, blank=True, help_text="Images that it may ask for beside the default.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("slug",)

    def __str__(self) -> str:
        return self.slug


class Project(models.Model):
    """A piece of an org's work. At most one live lease is attached to it, and at most one volume."""

    org = models.ForeignKey(Org, models.PROTECT, related_name="projects")
    slug = models.SlugField(max_length=48)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("slug",)
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=("org", "slug"), name="one_project_per_slug"),)

    def __str__(self) -> str:
        return f"{self.org}/{self.slug}"


class Volume(models.Model):
    """The disk of a project. It outlives its leases and ends by purge."""

    org = models.ForeignKey(Org, models.PROTECT, related_name="volumes")
    project = models.OneToOneField(Project, models.PROTECT, related_name="volume")
    name = models.CharField(max_length=63, unique=True)
    engine = models.CharField(max_length=16)
    host = models.CharField(max_length=255, blank=True, help_text="The machine that holds it (oci).")
    size = models.BigIntegerField(help_text="Bytes.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_leased_at = models.DateTimeField(default=timezone.now)
    deleting = models.BooleanField(default=False, help_text="Being deleted; nothing may lease it any more.")

    class Meta:
        ordering = ("name",)
        default_permissions = ("view", "delete")

    def __str__(self) -> str:
        return self.name


class State(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    PARKED = "parked"
    ERROR = "error"
    ENDING = "ending"
    ENDED = "ended"


PUBLIC = (State.PENDING, State.RUNNING, State.PARKED, State.ERROR)  #: what an org sees; the rest is a 404 to it
COUNTED = (State.PENDING, State.RUNNING)  #: what counts for the exec ceiling


class SandboxQuerySet(models.QuerySet["Sandbox"]):
    def public(self) -> SandboxQuerySet:
        return self.filter(state__in=PUBLIC)

    def here(self, engine: str, host: str) -> SandboxQuerySet:
        """What this process may observe and end: an oci lease belongs to the host that runs it; ``host`` is empty for a cluster's."""
        return self.filter(engine=engine, host=host)


class Sandbox(models.Model):
    """A lease. Everything that runs is derived from this row, and reconciled with it."""

    id = models.CharField(primary_key=True, max_length=26, default=new_lease_id, editable=False)
    org = models.ForeignKey(Org, models.PROTECT, related_name="sandboxes")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, blank=True, related_name="sandboxes")
    volume = models.ForeignKey(Volume, models.SET_NULL, null=True, blank=True, related_name="sandboxes")
    project_slug = models.CharField(max_length=48, blank=True, help_text="Kept when the project is deleted.")
    actor = models.CharField(max_length=80, help_text="Who took the lease.")
    idempotency_key = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001  (NULL is "none" to the unique constraint)

    klass = models.CharField("class", max_length=16, db_column="class")
    image = models.CharField(max_length=255)
    requested_runtime = models.CharField(max_length=16)
    runtime = models.CharField(max_length=16, blank=True, help_text="What it got.")
    engine = models.CharField(max_length=16)
    host = models.CharField(max_length=255, blank=True)
    generation = models.PositiveIntegerField(default=1, help_text="Grows at each start of the same lease.")

    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    error = models.TextField(blank=True)
    attached = models.BooleanField(default=False, help_text="Holds its project, until its sandbox is observed gone.")
    worker = models.CharField(max_length=64, blank=True, help_text="The process that starts it.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(default=timezone.now)
    connected_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()
    failed_at = models.DateTimeField(null=True, blank=True)

    end_reason = models.CharField(max_length=80, blank=True)
    purge = models.BooleanField(default=False)
    end_attempts = models.PositiveIntegerField(default=0)
    end_error = models.TextField(blank=True, help_text="Why the last attempt to end it failed.")
    #: Ending: when it is tried again. Pending: when processes of other hosts may take the start over.
    retry_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[models.Manager[Sandbox]] = SandboxQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "-id")
        verbose_name_plural = "sandboxes"
        default_permissions = ("view",)
        permissions = (("reap_sandbox", "Can end anybody's lease"),)
        constraints = (
            models.UniqueConstraint(fields=("project",), condition=Q(attached=True), name="one_lease_attached_per_project"),
            models.UniqueConstraint(
                fields=("org", "idempotency_key"), condition=Q(idempotency_key__isnull=False), name="one_lease_per_idempotency_key"
            ),
        )
        indexes = (
            models.Index(fields=("org", "-created_at", "-id"), condition=Q(state__in=PUBLIC), name="leases_of_an_org"),
            models.Index(fields=("-created_at", "-id"), name="leases_by_age"),
            models.Index(fields=("expires_at",), condition=Q(state__in=PUBLIC), name="leases_that_expire"),
            models.Index(fields=("retry_at",), condition=Q(state=State.ENDING), name="leases_that_end"),
        )

    def __str__(self) -> str:
        return self.id

    @property
    def container(self) -> str:
        return policy.container_name(self.id, self.generation)

    @property
    def workdir(self) -> str:
        return policy.CLASSES[self.klass].workdir


class ApiKey(models.Model):
    """A credential of an org: ``sbx_<prefix>_<secret>``. Only the hash of the whole is kept."""

    class Scope(models.TextChoices):
        READ = "read", "see leases, projects and volumes"
        USE = "use", "run commands, read and write files"
        MANAGE = "manage", "lease and end sandboxes, projects and volumes"

    org = models.ForeignKey(Org, models.CASCADE, related_name="keys")
    name = models.CharField(max_length=80, blank=True)
    prefix = models.CharField(max_length=12, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="To the minute.")

    text = ""  #: the key itself: only where it was just made, and never stored

    class Meta:
        ordering = ("-created_at",)
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"sbx_{self.prefix}"

    @classmethod
    def create(cls, org: Org, *, name: str = "", scopes: list[str] | None = None, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
        """Make a key; its text is returned once and cannot be had again."""
        key = cls(org=org, name=name, scopes=cls.Scope.values if scopes is None else scopes, expires_at=expires_at)
        key.issue()
        key.save(force_insert=True)
        return key, key.text

    def issue(self) -> None:
        """Give a key that is not saved yet its secret, in ``text``."""
        self.prefix = secrets.token_hex(6)
        self.text = f"sbx_{self.prefix}_{secrets.token_urlsafe(32)}"
        self.digest = self.hash(self.text)

    @staticmethod
    def hash(text: str) -> str:
        """SHA-256 is enough: the secret has 256 random bits, so there is nothing to guess that a slow hash would slow down."""
        return hashlib.sha256(text.encode()).hexdigest()

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(self.digest, self.hash(text))

    def is_live(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


class Event(models.Model):
    """Who did what to which lease, when and why. Append-only; it outlives what it tells of."""

    at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)
    org = models.ForeignKey(Org, models.SET_NULL, null=True, related_name="events")
    sandbox = models.CharField(max_length=26, blank=True, db_index=True)
    kind = models.CharField(max_length=32)
    actor = models.CharField(max_length=80)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ("-at", "-id")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.kind} {self.sandbox}"
