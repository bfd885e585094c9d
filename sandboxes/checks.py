"""System checks: bad settings are refused at start, by name."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register


@register(Tags.compatibility)
def runtimes_are_known(**_: Any) -> list[CheckMessage]:
    offered = settings.SANDBOXHUB_RUNTIMES
    unknown = [name for name in offered if name not in ("gvisor", "runc")]
    if unknown or not offered:
        return [Error(f"SANDBOXHUB_RUNTIMES: {', '.join(unknown) or 'empty'}; the oci engine has gvisor and runc", id="sandboxes.E001")]
    return []


@register(Tags.compatibility)
def settings_are_known(**_: Any) -> list[CheckMessage]:
    """A misspelt name would silently leave its default in force."""
    known = {name for name in dir(settings) if name.startswith("SANDBOXHUB_")} | {
        "SANDBOXHUB_PROXY",
        "SANDBOXHUB_SECURE",
        "SANDBOXHUB_DRAIN",
    }
    known |= {f"{name}_FILE" for name in known}
    given = {name for name in os.environ if name.startswith("SANDBOXHUB_")}
    return [Error(f"{name} is not a setting of Sandboxhub", id="sandboxes.E002") for name in sorted(given - known)]
