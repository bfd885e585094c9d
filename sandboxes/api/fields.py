"""Serializer fields as strict as the contract: an integer is an integer, a string is text that can be stored and sent."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers


class Text(serializers.CharField):
    """A JSON string, kept as it is; no NUL and no lone surrogate."""

    default_error_messages = {"invalid": "must be a string", "unencodable": "must be text without NUL and lone surrogates"}

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("allow_blank", True)
        kwargs.setdefault("allow_null", True)
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        try:
            data.encode()
        except UnicodeEncodeError:
            self.fail("unencodable")
        if "\0" in data:
            self.fail("unencodable")
        return data


@extend_schema_field({"type": "string", "nullable": True, "enum": ["exec", "dev", "desktop", "", None]})
class ClassName(Text):
    """The class of a sandbox, checked by ``policy``: case and blanks around it do not matter."""


class Whole(serializers.IntegerField):
    """A JSON integer: ``1.0``, ``"1"`` and ``true`` are refused. Kept within 64 bits."""

    default_error_messages = {"invalid": "must be an integer"}

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("allow_null", True)
        super().__init__(min_value=-(2**63), max_value=2**63 - 1, **kwargs)

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return data


class Flag(serializers.BooleanField):
    """A JSON boolean."""

    default_error_messages = {"invalid": "must be true or false"}

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("allow_null", True)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


@extend_schema_field({"type": "string", "format": "byte", "nullable": True})
class Base64(Text):
    """Bytes in the standard base64 alphabet, padded."""

    default_error_messages = {"base64": "must be base64 in the standard alphabet, padded"}

    def to_internal_value(self, data: Any) -> bytes:  # type: ignore[override]
        try:
            return base64.b64decode(super().to_internal_value(data), validate=True)
        except (binascii.Error, ValueError):
            self.fail("base64")


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class Environment(serializers.DictField):
    """Names and values for a command's environment."""

    child = Text(allow_null=False)
    default_error_messages = {"name": "{name!r} is not a name of letters, digits and _"}

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("allow_null", True)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        value: dict[str, str] = super().to_internal_value(data)
        for name in value:
            if not _NAME.fullmatch(name):
                self.fail("name", name=name)
        return value


class Strings(serializers.ListField):
    """A JSON array of strings."""

    child = Text(allow_null=False)

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("allow_null", True)
        super().__init__(**kwargs)
