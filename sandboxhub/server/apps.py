"""The Django app of the server."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Tags, register

from sandboxhub.server.install import install

RUNSERVER_OWNERS = ("daphne", "django.contrib.staticfiles")


class ServerConfig(AppConfig):
    name = "sandboxhub.server"
    label = "server"

    def ready(self) -> None:
        register(check_order, Tags.compatibility)
        install()


def check_order(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """`runserver` is ours only when this app comes before the others that bring one."""
    names = [config.name for config in apps.get_app_configs()]
    mine = names.index(ServerConfig.name)
    return [
        Error(f"'{ServerConfig.name}' must come before '{other}' in INSTALLED_APPS, or runserver uses another server.", id="server.E001")
        for other in RUNSERVER_OWNERS
        if other in names[:mine]
    ]
