"""Names of secrets, whose values are never shown or logged. The standard library only."""

from __future__ import annotations

import re

MASK = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = frozenset(
    {
        "auth",
        "authorization",
        "cookie",
        "cookies",
        "credential",
        "credentials",
        "env",
        "environ",
        "header",
        "headers",
    }
)
# Matched as suffixes, so that "apikey" is one; "tokens" is none, because usage is counted in them.
_SECRET_ENDINGS = ("key", "keys", "password", "passwd", "secret", "secrets", "token")


def looks_secret(name: str) -> bool:
    """Whether `name` (snake_case, camelCase, UPPER_CASE or a header's name) looks like the name of
    a secret.
    """
    words = (word.lower() for word in _WORD.findall(name))
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)
