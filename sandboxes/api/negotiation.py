"""Content negotiation, of which the contract has none. A module of its own, because DRF imports it while it imports itself."""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request


class IgnoreAccept(BaseContentNegotiation):
    """Answers are JSON, whatever ``Accept`` says; bodies are JSON, whatever ``Content-Type`` says (contract.md section 1.1)."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type
