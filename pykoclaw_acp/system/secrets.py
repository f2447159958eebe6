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
        "pass",
        "passphrase",
        "pgpass",
    }
)
# Matched as suffixes, so that "apikey" is one; "tokens" is none, because usage is counted in them.
_SECRET_ENDINGS = ("key", "keys", "password", "passwd", "secret", "secrets", "token")


_NAMED = re.compile(r"([A-Za-z][\w-]*)[\"']?\s*[=:]|--?([A-Za-z][\w-]*)")
_TOKEN = re.compile(r"[A-Za-z0-9_+/=-]{24,}")
_USER = re.compile(r"://[^/\s]*@|[?&][\w-]+=")
_HTTP = re.compile(r"\b(?:Bearer|Basic)\s+\S")
# Programs, and their options that take a secret. Each is looked for by itself: a text may be long.
_TAKING = (
    (
        re.compile(r"\bcurl\s"),
        re.compile(r"\s(?:-[A-Za-z0-9#]*[uU]|--(?:proxy-)?user\b|--oauth2-bearer\b)"),
    ),
    (re.compile(r"\b(?:https?|xhs?)\s"), re.compile(r"\s-[A-Za-z0-9]*a")),
    (
        re.compile(r"\b(?:sshpass|mysql\w*|mariadb[\w-]*|redis-cli|docker\s+login)\s"),
        re.compile(r"\s-[pa]"),
    ),
)


def may_hold_secret(text: str) -> bool:
    """Whether a command or an address may hold a secret: something is given to a name of one, or it
    has an address with a user or a query, a program is given a password, or a long word of
    letters and digits.
    """
    names = (name or option for name, option in _NAMED.findall(text))
    words = _TOKEN.findall(text)
    mixed = (re.search("[0-9]", word) and re.search("[A-Za-z]", word) for word in words)
    return (
        any(looks_secret(name) for name in names)
        or any(mixed)
        or bool(_USER.search(text) or _HTTP.search(text))
        or any(program.search(text) and option.search(text) for program, option in _TAKING)
    )


def looks_secret(name: str) -> bool:
    """Whether `name` (snake_case, camelCase, UPPER_CASE or a header's name) looks like the name of
    a secret.
    """
    words = (word.lower() for word in _WORD.findall(name))
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)
