"""Reads settings from the environment and refuses bad ones by name."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Env(environ.FileAwareEnv):
    """django-environ's ``FileAwareEnv`` (``NAME_FILE`` names a file that holds the value), with ranges, sizes and errors that name the
    setting.
    """

    def get_value(self, var, *args, **kwargs):  # type: ignore[no-untyped-def]
        try:
            return super().get_value(var, *args, **kwargs)
        except (ValueError, OSError) as error:
            raise ImproperlyConfigured(f"{var}: {error}") from error

    def number(self, var: str, default: float, *, least: float, most: float) -> float:
        value: float = self.float(var, default=default)
        if not least <= value <= most:
            raise ImproperlyConfigured(f"{var}: {value:g} is not between {least:g} and {most:g}")
        return value

    def whole(self, var: str, default: int, *, least: int, most: int) -> int:
        value: int = self.int(var, default=default)
        if not least <= value <= most:
            raise ImproperlyConfigured(f"{var}: {value} is not between {least} and {most}")
        return value

    def size(self, var: str, default: str, *, least: int = 1) -> int:
        """A number of bytes: ``1048576``, ``512MiB``, ``2GiB``."""
        text = self.str(var, default=default)
        match = re.fullmatch(r"(\d{1,15})\s*([KMGT]iB)?", text.strip())
        if match is None:
            raise ImproperlyConfigured(f"{var}: {text!r} is not a size such as 512MiB or 2GiB")
        value = int(match[1]) * _UNITS[match[2] or ""]
        if value < least:
            raise ImproperlyConfigured(f"{var}: {text!r} is less than {least} bytes")
        return value

    def pairs(self, var: str) -> dict[str, str]:
        """``a=1,b=2``; a value may be empty."""
        found = {}
        for part in self.list(var, default=[]):
            name, equals, value = part.partition("=")
            if not (name.strip() and equals):
                raise ImproperlyConfigured(f"{var}: {part!r} is not of the form NAME=VALUE")
            found[name.strip()] = value.strip()
        return found

    def one_of(self, var: str, default: str, choices: tuple[str, ...]) -> str:
        value: str = self.str(var, default=default)
        if value not in choices:
            raise ImproperlyConfigured(f"{var}: {value!r} is not one of {', '.join(choices)}")
        return value


def private_directory(path: Path) -> Path:
    """Make ``path`` readable by its owner only. An existing directory keeps its mode, but others may not write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise ImproperlyConfigured(f"SANDBOXHUB_HOME: cannot make {path}: {error.strerror}") from error
    if mode & 0o022:
        raise ImproperlyConfigured(f"SANDBOXHUB_HOME: others may write to {path}, and so take over the server: chmod go-w {path}")
    return path


def private_file(path: Path) -> None:
    """Make ``path`` empty and readable by its owner only, unless it exists or has no directory yet."""
    if not path.exists() and path.parent.is_dir():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def generated_secret(path: Path) -> str:
    """The secret kept in ``path``, made at the first call. Two processes that start at once agree on one."""
    if not path.exists():
        scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(scratch, path)
        except FileExistsError:
            pass
        finally:
            scratch.unlink()
    return path.read_text().strip()
