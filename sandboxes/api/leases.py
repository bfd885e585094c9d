"""Finds a lease for the API."""

from __future__ import annotations

import re

from sandboxes import errors
from sandboxes.models import PUBLIC, Org, Sandbox

_ID = re.compile(r"m_[0-9a-f]{24}")


def find(org: Org, pk: str) -> Sandbox:
    """A lease of ``org``. One answer for an id that is unknown and for one that is another org's."""
    found = Sandbox.objects.select_related("org", "volume").filter(org=org, pk=pk, state__in=PUBLIC).first() if _ID.fullmatch(pk) else None
    if found is None:
        raise errors.NotFound("no such sandbox")
    return found
