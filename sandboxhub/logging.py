"""Structured logs on stderr: key=value for people, JSON lines for machines. No header, query string or body is ever logged."""

from __future__ import annotations

import logging.config
import sys
from typing import Any

import structlog


def configure(options: dict[str, str]) -> None:
    """``options``: ``level`` and ``format`` (``console`` or ``json``), from settings."""
    # Plain tracebacks: with rich installed, structlog's own choice shows the values of all variables, keys among them.
    console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = structlog.processors.JSONRenderer() if options["format"] == "json" else console
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if options["format"] == "json":
        shared.append(structlog.processors.format_exc_info)
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "main": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
                    "foreign_pre_chain": shared,
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "main"}},
            "root": {"handlers": ["stderr"], "level": options["level"]},
            "loggers": {
                # A client's mistake is the client's to read; 4xx lines here would only be noise.
                "django.request": {"level": "ERROR"},
                "django.security.DisallowedHost": {"level": "CRITICAL"},
                "twisted": {"level": "WARNING"},
                "daphne": {"level": "WARNING"},
                "asyncio": {"level": "WARNING"},
            },
        }
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
