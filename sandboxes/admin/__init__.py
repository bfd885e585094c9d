"""The staff's half: what is leased, by whom, and what became of it; orgs and keys; and ``reap``.

Reading is Django's own admin. What changes a lease goes through ``sandboxes.lifecycle``, as everywhere.
"""

from __future__ import annotations

from django.contrib import admin

from sandboxes.admin.events import EventAdmin
from sandboxes.admin.keys import ApiKeyAdmin
from sandboxes.admin.leases import SandboxAdmin
from sandboxes.admin.orgs import OrgAdmin
from sandboxes.admin.resources import ProjectAdmin, VolumeAdmin

__all__ = ["ApiKeyAdmin", "EventAdmin", "OrgAdmin", "ProjectAdmin", "SandboxAdmin", "VolumeAdmin"]

admin.site.site_header = admin.site.site_title = "Sandboxhub"
admin.site.index_title = "Leases and those who hold them"
