"""How passwords of staff are hashed."""

from __future__ import annotations

import threading

from django.contrib.auth.hashers import Argon2PasswordHasher

_one = threading.Lock()


class OneAtATime(Argon2PasswordHasher):
    """Argon2, one hash at a time: each takes 100 MiB, and whoever reaches the login form may ask for as many as they like."""

    def encode(self, password: str, salt: str) -> str:
        with _one:
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        with _one:
            return super().verify(password, encoded)
