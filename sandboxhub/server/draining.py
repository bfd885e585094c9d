"""What long requests are told when the server stops: end now, and answer."""

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class DrainSignal:
    """Callbacks that are called once, when requests in flight have had their time. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._fired = False

    def register(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the drain comes, or at once when it has come. Returns a function that unregisters it (idempotent)."""
        token = object()
        with self._lock:
            late = self._fired
            if not late:
                self._callbacks[token] = callback
        if late:
            callback()

        def unregister() -> None:
            with self._lock:
                self._callbacks.pop(token, None)

        return unregister

    def fire(self) -> None:
        """Call what is registered. One that raises is logged; the others are still called."""
        with self._lock:
            self._fired = True
            callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001  one bad callback must not cost the other requests their answers
                logger.exception("a drain callback failed")


signal = DrainSignal()


def on_drain(callback: Callable[[], None]) -> Callable[[], None]:
    """Register `callback` for the moment when a stopping server gives requests in flight their last seconds to answer.

    It is called once, on the server's event loop (in the caller's thread when the moment has already passed), so it must be quick and
    thread-safe. Returns a function that unregisters it. Under another server nothing is ever called.
    """
    return signal.register(callback)
