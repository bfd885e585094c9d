"""What a lease may be, as data and pure functions: classes, runtimes, names and clocks. No I/O, no Django.

Sources: contract.md sections 1.1, 4 and 6.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandboxes import errors

MAX_TTL = 86_400  #: seconds; more is clamped
MAX_LIFE = 86_400  #: seconds from createdAt after which no lease lives on
ERROR_VISIBLE = 900  #: seconds that a failed lease stays readable
SLOT_WAIT = 10.0  #: seconds that a create waits for a project whose lease is ending
END_WAIT = 10.0  #: seconds that an end waits for the sandbox to be gone
RUNTIMES = ("runc", "gvisor", "kata-clh", "kata-fc")  #: every name that the API knows
_NO_VOLUME = ("kata-fc",)  #: runtimes whose writes to a volume would be lost


@dataclass(frozen=True)
class SandboxClass:
    """What a sandbox is for."""

    name: str
    workdir: str
    ttl: int  #: seconds of a lease that asks for none
    attached: bool  #: bound to a project, and to its volume


CLASSES = {
    entry.name: entry
    for entry in (
        SandboxClass("exec", "/mnt/data", 900, attached=False),
        SandboxClass("dev", "/work", 14_400, attached=True),
        SandboxClass("desktop", "/work", 14_400, attached=True),
    )
}


def sandbox_class(name: str) -> SandboxClass:
    """The class called ``name`` (trimmed, any case; empty means ``exec``)."""
    try:
        return CLASSES[name.strip().lower() or "exec"]
    except KeyError:
        raise errors.InvalidClass(f"class {name!r} is not one of {', '.join(CLASSES)}") from None


def slug(text: str) -> str:
    """A project's name as it is stored: lower case ``a-z 0-9 -``, at most 48; may be empty."""
    turned = re.sub(r"[_/. ]", "-", text.lower())
    return re.sub(r"[^a-z0-9-]", "", turned).strip("-")[:48].strip("-")


def volume_name(org: str, project: str) -> str:
    """The one volume of (org, project): at most 63 of ``a-z 0-9 -``, the same every time."""
    digest = hashlib.sha256(f"{org}\0{project}".encode()).hexdigest()[:10]
    readable = re.sub(r"[^a-z0-9-]", "-", f"m-{org}-{project}".lower())
    return readable[: 63 - 11].rstrip("-") + f"-{digest}"


def container_name(lease: str, generation: int) -> str:
    """The name of the container or pod that the ``generation``-th start of ``lease`` runs. All have one length."""
    return f"m-{lease.removeprefix('m_')}-{generation:04d}"


def lease_of(container: str) -> tuple[str, int]:
    """The lease id and generation in a container's name."""
    _, lease, generation = container.split("-")
    return f"m_{lease}", int(generation)


def ttl(asked: int | None, kind: SandboxClass) -> int:
    """Seconds of a new lease: what was asked, clamped; nothing, zero or less is the class's own."""
    if asked is None or asked <= 0:
        return kind.ttl
    return min(asked, MAX_TTL)


def renewed(expires: float, created: float, now: float, asked: int | None) -> float:
    """When a resumed lease ends: never sooner than before, never past its longest life (contract.md section 6, row 3)."""
    if asked is None or asked <= 0:
        return expires
    return max(expires, min(now + min(asked, MAX_TTL), created + MAX_LIFE))


def usable_runtimes(offered: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """What an org may ask for, in the deployment's order of preference. An empty ``allowed`` means all."""
    return [name for name in offered if not allowed or name in allowed]


def runtime(asked: str, offered: Sequence[str], allowed: Sequence[str], *, volume: bool) -> str:
    """The runtime of a new lease.

    ``offered``: by this deployment, in order of preference; ``allowed``: to this org (empty: all offered).
    """
    usable = usable_runtimes(offered, allowed)
    asked = asked.strip()
    if not asked:
        for name in usable:
            if not (volume and name in _NO_VOLUME):
                return name
        raise errors.RuntimeRefused("no runtime of this deployment is allowed to this org")
    if asked not in RUNTIMES:
        raise errors.RuntimeRefused(f"runtime {asked!r} is not one of {', '.join(RUNTIMES)}")
    if asked not in usable:
        raise errors.RuntimeRefused(f"runtime {asked} is not offered here; offered: {', '.join(usable) or 'none'}")
    if volume and asked in _NO_VOLUME:
        raise errors.RuntimeRefused(f"runtime {asked} cannot keep a volume, which class dev and desktop need")
    return asked


def class_images(given: Mapping[str, str], default: str) -> dict[str, str]:
    """The image of every class: what is ``given``, or the engine's ``default``."""
    return {name: given.get(name, default) for name in CLASSES}


def image(asked: str, own: str, known: Sequence[str], allowed: Sequence[str], *, any_image: bool = False) -> str:
    """The image of a new lease. ``own``: the class's; ``known``: to the engine; ``allowed``: to this org.

    ``any_image``: what is allowed need not be known.
    """
    asked = asked.strip()
    if not asked:
        return own
    if asked not in allowed:
        raise errors.ImageRefused(f"image {asked!r} is not allowed to this org")
    if asked not in known and not any_image:
        raise errors.ImageRefused(f"there is no image {asked!r}; known: {', '.join(known)}")
    return asked
