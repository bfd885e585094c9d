"""How large a request's body may be: known before a byte of it is read."""

from __future__ import annotations

import re

from django.conf import settings

_FILE_WRITE = re.compile(r"/v1/sandbox(?:es)?/[^/]+/(?:fs|terminal/upload)")


def is_file_write(method: str, path: str) -> bool:
    return method == "POST" and _FILE_WRITE.fullmatch(path) is not None


def body_limit(method: str, path: str) -> int:
    """The most bytes of the body of ``method`` ``path``: a file's, or any other's."""
    limit: int = settings.SANDBOXHUB_MAX_FILE if is_file_write(method, path) else settings.SANDBOXHUB_MAX_BODY
    return limit
