"""Tickets: what opens one terminal, once."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from sandboxes.models import Sandbox


class Ticket(models.Model):
    """A single-use credential for one door of one sandbox. Only hashes are kept.

    It stands in the browser's address bar and in the logs of every proxy on the way: so it is spent at its first presentation, whatever
    comes of it. ``expires_at``: until when it may be presented; of a terminal that is open, until when that is known without more news.
    """

    class Door(models.TextChoices):
        TERMINAL = "terminal"

    digest = models.CharField(max_length=64, unique=True)
    sandbox = models.ForeignKey(Sandbox, models.CASCADE, related_name="tickets")
    door = models.CharField(max_length=16, choices=Door.choices)
    actor = models.CharField(max_length=80, help_text="Who had it minted.")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    spent_at = models.DateTimeField(null=True)
    upload_digest = models.CharField(max_length=64, blank=True, db_index=True, help_text="Of the token by which its page uploads files.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.door} of {self.sandbox_id}"
