"""System checks: bad settings are refused at start, by name."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

from sandboxes import policy


@register(Tags.compatibility)
def runtimes_are_known(**_: Any) -> list[CheckMessage]:
    offered, engine = settings.SANDBOXHUB_RUNTIMES, settings.SANDBOXHUB_ENGINE
    known = policy.RUNTIMES if engine == "kubernetes" else ("runc", "gvisor")
    unknown = [name for name in offered if name not in known]
    if unknown or not offered:
        words = ", ".join(unknown) or "empty"
        return [Error(f"SANDBOXHUB_RUNTIMES: {words}; the {engine} engine has {', '.join(known)}", id="sandboxes.E001")]
    return []


@register(Tags.compatibility)
def the_cluster_is_described(**_: Any) -> list[CheckMessage]:
    if settings.SANDBOXHUB_ENGINE != "kubernetes":
        return []
    found: list[CheckMessage] = []
    if not settings.SANDBOXHUB_IMAGE:
        found.append(Error("SANDBOXHUB_IMAGE: the kubernetes engine needs an image for its sandboxes", id="sandboxes.E003"))
    if unknown := sorted(set(settings.SANDBOXHUB_RUNTIME_CLASSES) - set(policy.RUNTIMES)):
        found.append(Error(f"SANDBOXHUB_RUNTIME_CLASSES: {', '.join(unknown)}; known: {', '.join(policy.RUNTIMES)}", id="sandboxes.E004"))
    return found


@register(Tags.compatibility)
def class_images_are_there(**_: Any) -> list[CheckMessage]:
    """A cluster is asked only when a sandbox starts."""
    given = settings.SANDBOXHUB_CLASS_IMAGES
    found: list[CheckMessage] = []
    if unknown := sorted(set(given) - set(policy.CLASSES)):
        found.append(Error(f"SANDBOXHUB_CLASS_IMAGES: {', '.join(unknown)}; classes: {', '.join(policy.CLASSES)}", id="sandboxes.E005"))
    if settings.SANDBOXHUB_ENGINE == "oci":
        images = settings.SANDBOXHUB_HOME / "images"
        missing = [name for name in given.values() if name != "host" and not (name and (images / name).is_dir())]
        found += [Error(f"SANDBOXHUB_CLASS_IMAGES: there is no directory {images / name}", id="sandboxes.E006") for name in missing]
    return found


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
