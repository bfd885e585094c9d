"""Finds a lease for the API."""

from __future__ import annotations

import re

from sandboxes import errors
from sandboxes.models import PUBLIC, Org, Sandbox

_ID = re.compile(r"m_[0-9a-f]{24}")


def find(org: Org, pk: str) -> Sandbox:
    """A lease of ``org``. One answer for an id that is unknown and for one that is another org's."""
    try:
        if not _ID.fullmatch(pk):
            raise Sandbox.DoesNotExist
        # The volume is not joined: most requests have no use for it, and on this path the width of a query is what it costs.
        found = Sandbox.objects.get(org=org, pk=pk, state__in=PUBLIC)
    except Sandbox.DoesNotExist:
        raise errors.NotFound("no such sandbox") from None
    found.org = org
    return found
