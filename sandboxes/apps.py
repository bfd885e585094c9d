"""The Django application of leases."""

from django.apps import AppConfig


class SandboxesConfig(AppConfig):
    name = "sandboxes"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from sandboxes import checks  # noqa: F401  (registers the system checks)
