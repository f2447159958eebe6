"""Parser of `.env` files, compatible with python-dotenv; the standard library only, for the front's
start-up time.
"""

from __future__ import annotations

import errno
import os
import re
from collections import ChainMap

from pykoclaw_acp.system.regular_files import opened

_SPACE = re.compile(r"[^\S\r\n]*")
_BLANK = re.compile(r"\s*")
_EXPORT = re.compile(r"(?:export[^\S\r\n]+)?")
_KEY = re.compile(r"'([^']+)'|([^=#\s']+[^=#\s]*)")
_EQUALS = re.compile(r"=([^\S\r\n]*)")
_SINGLE = re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_DOUBLE = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_PLAIN = re.compile(r"([^\r\n]*)")
_COMMENT = re.compile(r"(?:[^\S\r\n]*#[^\r\n]*)?")
_END = re.compile(r"[^\S\r\n]*(?:\r\n|\n|\r|$)")
_REST = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)?")
# What does not end is matched, too (without group 3), lest each beginning in it be tried.
_VARIABLE = re.compile(r"\$\{([^}:]*+)(?::-([^}]*+))?+(\})?")
MOST = 1 << 20  # characters that the variables in one file may stand for
_ESCAPES = {
    f"\\{letter}": sign for letter, sign in zip("\\'\"abfnrtv", "\\'\"\a\b\f\n\r\t\v", strict=True)
}


class _Malformed(Exception):
    pass


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def bindings(self) -> list[tuple[str, str | None]]:
        """Names and values, in order; lines that are not assignments are skipped."""
        found: list[tuple[str, str | None]] = []
        while self._at < len(self._text):
            try:
                self._take(_BLANK)
                if self._at < len(self._text):
                    name, value = self._binding()
                    if name is not None:
                        found.append((name, value))
            except _Malformed:
                self._take(_REST)
        return found

    def _binding(self) -> tuple[str | None, str | None]:
        self._take(_EXPORT)
        name = None
        if not self._next("#"):
            key = self._take(_KEY)
            name = key[1] or key[2]
        self._take(_SPACE)
        value = self._value() if self._next("=") else None
        self._take(_COMMENT)
        self._take(_END)
        return name, value

    def _value(self) -> str:
        if self._take(_EQUALS)[1] and self._next("#"):
            return ""
        if self._next("'"):
            return re.sub(r"\\[\\']", lambda found: _ESCAPES[found[0]], self._take(_SINGLE)[1])
        if self._next('"'):
            return re.sub(
                r"\\[\\'\"abfnrtv]", lambda found: _ESCAPES[found[0]], self._take(_DOUBLE)[1]
            )
        return re.sub(r"\s#.*", "", self._take(_PLAIN)[1]).rstrip()

    def _next(self, character: str) -> bool:
        return self._text.startswith(character, self._at)

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _Malformed
        self._at = match.end()
        return match


def read(path: str) -> dict[str, str]:
    """Variables of the file, with `${NAME}` and `${NAME:-default}` expanded; raises OSError, also if
    it is no file or those stand for more than `MOST`, and UnicodeDecodeError.
    """
    with opened(path) as descriptor, open(descriptor, encoding="utf-8", closefd=False) as file:
        text = file.read().removeprefix("\ufeff")
    values: dict[str, str | None] = {}
    known = ChainMap[str, str | None](values, dict(os.environ))
    left = MOST

    def meant(found: re.Match[str]) -> str:
        nonlocal left
        if found[3] is None:
            return found[0]
        said = known.get(found[1], found[2] or "") or ""
        left -= len(said)
        if left < 0:
            raise OSError(errno.EFBIG, f"its variables stand for more than {MOST >> 20} MiB", path)
        return said

    for name, value in _Parser(text).bindings():
        values[name] = None if value is None else _VARIABLE.sub(meant, value)
    return {name: value for name, value in values.items() if value is not None}
