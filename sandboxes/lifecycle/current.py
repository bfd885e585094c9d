"""The hub of this process, and the one way to call into it from synchronous code."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from django.conf import settings

from sandboxes.engine.base import Engine
from sandboxes.lifecycle.hub import Hub
from sandboxes.lifecycle.threads import LoopThread, in_thread, run_on
from sandboxes.models import Deployment

T = TypeVar("T")

_hub: Hub | None = None
_thread: LoopThread | None = None
_lock = threading.Lock()


def make_engine(instance: str) -> Engine:
    """The engine that the settings name, for the deployment ``instance``; not opened yet.

    Each is imported only where it is used: a cluster's client is big.
    """
    if settings.SANDBOXHUB_ENGINE == "kubernetes":
        from sandboxes.engine.kubernetes import KubernetesConfig, KubernetesEngine

        classes = settings.SANDBOXHUB_RUNTIME_CLASSES
        return KubernetesEngine(
            KubernetesConfig(
                instance=instance,
                namespace=settings.SANDBOXHUB_NAMESPACE,
                guest=settings.SANDBOXHUB_GUEST,
                runtimes={name: classes.get(name, name) for name in settings.SANDBOXHUB_RUNTIMES},
                image=settings.SANDBOXHUB_IMAGE,
                storage_class=settings.SANDBOXHUB_STORAGE_CLASS,
                schedule_wait=settings.SANDBOXHUB_SCHEDULE_WAIT,
                kubeconfig=settings.KUBECONFIG,
            )
        )
    from sandboxes.engine.oci import OciConfig, OciEngine

    binaries = {"gvisor": settings.SANDBOXHUB_RUNSC, "runc": settings.SANDBOXHUB_RUNC}
    return OciEngine(
        OciConfig(
            instance=instance,
            home=settings.SANDBOXHUB_HOME,
            guest=settings.SANDBOXHUB_GUEST,
            runtimes={name: binaries[name] for name in settings.SANDBOXHUB_RUNTIMES},
        )
    )


async def open_hub() -> Hub:
    """Make the hub on the running loop. The server calls this at start; other processes get theirs at the first ``call``."""
    global _hub
    hub = Hub(make_engine(await in_thread(Deployment.instance_id)))
    try:
        await hub.open()
    except BaseException:
        await hub.close()
        raise
    _hub = hub
    return hub


async def close_hub() -> None:
    global _hub
    if _hub is not None:
        hub, _hub = _hub, None
        await hub.close()


def hub() -> Hub:
    """The hub of this process. Its own attributes are for its loop; ``engine.images`` and the like may be asked from any thread."""
    global _thread
    if _hub is None:
        with _lock:
            if _hub is None:
                _thread = _thread or LoopThread()
                run_on(_thread.loop, open_hub)
    assert _hub is not None  # noqa: S101  (open_hub made it, or raised)
    return _hub


def warnings() -> tuple[str, ...]:
    """What staff should know of the isolation of sandboxes, as far as this process has found out."""
    return _hub.warnings if _hub is not None else ()


def call(work: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run ``work(hub, *args)`` on the hub's loop and wait for it, holding no database connection meanwhile."""
    current = hub()
    return run_on(current.loop, work, current, *args)


def close() -> None:
    """Close what ``call`` opened in this process; the server closes its own."""
    global _thread
    if _thread is not None:
        run_on(_thread.loop, close_hub)
        _thread.stop()
        _thread = None
