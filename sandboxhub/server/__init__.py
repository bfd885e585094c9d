"""The web server: Daphne plus what it lacks. It knows nothing of the application it serves.

This module imports neither Twisted nor Daphne, so that management commands and other servers can use `on_drain` for nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sandboxhub.server.draining import on_drain
from sandboxhub.server.install import install

if TYPE_CHECKING:
    from sandboxhub.server.types import Application

__all__ = ["install", "on_drain", "serve"]


def serve(application: "Application", *, host: str, port: int, on_listening: Callable[[str, int], None] | None = None) -> None:
    """Serve `application` on a TCP address until SIGTERM or SIGINT, drain, and return. Call it from the main thread, once in a process.

    `port` 0 lets the system choose. `on_listening` gets the real host and port when connections are accepted. Raises SystemExit with a
    message (exit code 1) when the application refuses to start or the address can't be had. A second signal ends the process at once.
    """
    from sandboxhub.server.server import HubServer  # installs the Twisted reactor

    HubServer.on_address(application, host, port, on_listening).run()
