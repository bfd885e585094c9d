"""`manage.py runserver` on the server that production uses."""

from daphne.management.commands.runserver import Command as DaphneCommand

from sandboxhub.server.server import HubServer


class Command(DaphneCommand):
    server_cls = HubServer  # type: ignore[assignment]
