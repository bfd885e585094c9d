"""The Django application of terminals."""

from django.apps import AppConfig


class TerminalsConfig(AppConfig):
    name = "terminals"
    default_auto_field = "django.db.models.BigAutoField"
