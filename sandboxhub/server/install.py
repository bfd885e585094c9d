"""Put HubServer where Daphne's own command line looks for its server."""

import sys


def install() -> None:
    """Make `daphne package.asgi:application` use HubServer. Idempotent; does nothing, and imports nothing, in any other process.

    Daphne's command line loads the application, and with it Django's apps, before it makes the server. `manage.py runserver` needs no
    patch: this app brings the command.
    """
    if (cli := sys.modules.get("daphne.cli")) is None:
        return
    from sandboxhub.server.server import HubServer

    cli.CommandLineInterface.server_class = HubServer
