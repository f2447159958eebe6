"""A long line of JSON, read in steps: its long strings are taken out first, and what is left is short.

msgspec decodes a line in one call, which takes milliseconds for each MiB and lets nobody else run meanwhile. Here
strings are decoded in pieces, and in their place in the line stands a mark that no client can know.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeVar

import msgspec

LONG: Final = 256 * 1024  # bytes of a line; up to here it is decoded in one call, within half a millisecond
PIECE: Final = 64 * 1024  # bytes that a step works on
KEPT: Final = 64  # bytes of a string that stays in the line
MOST_STRINGS: Final = 50_000  # in a line
_STEP: Final = 128  # short strings that a step passes
MOST_OUTSIDE: Final = 1024 * 1024  # bytes of a line outside of its strings: some 100,000 values

_ESCAPE: Final = 6  # bytes of one, `\\u1234`, at most; a character is up to two of them
_LOW: Final = re.compile(rb"\\u[dD][c-fC-F]")  # how the second of two begins
_REST_OF_CHARACTER: Final = range(0x80, 0xC0)  # bytes of UTF-8

T = TypeVar("T")


@dataclass(slots=True)
class Short:
    """The line without its long strings, which `texts` has by their marks."""

    line: bytes
    texts: dict[str, str] = field(default_factory=dict)

    def restore(self, blocks: list[T]) -> bool:
        """Put the texts into these structs, whose fields hold marks; False unless each text has found its place."""
        left = dict(self.texts)
        for at, block in enumerate(blocks):
            assert isinstance(block, msgspec.Struct)
            found: dict[str, Any] = {}
            for name in block.__struct_fields__:
                value = getattr(block, name)
                if isinstance(value, str) and value in left:
                    found[name] = left.pop(value)
            if found:
                blocks[at] = msgspec.structs.replace(block, **found)
        return not left


class TooComplex(Exception):
    """The line has too many values: to read it would take seconds."""


class _NoString(Exception):
    """A string does not end, or a piece of it is no text."""


def shorten(line: bytes) -> Generator[None, None, Short | None]:
    """The line without its long strings; None if it has none, or is no JSON. Raises TooComplex."""
    secret = secrets.token_hex(16)
    texts: dict[str, str] = {}
    parts: list[bytes] = []
    copied = at = outside = 0
    try:
        for count in range(MOST_STRINGS):
            if count % _STEP == 0:
                yield
            begin = yield from _find_quote(line, at)
            outside += begin - at
            if outside > MOST_OUTSIDE:
                break
            if begin == len(line):
                parts.append(line[copied:])
                return Short(b"".join(parts), texts) if texts else None
            cuts = yield from _cuts(line, begin + 1)
            end = cuts[-1]
            if end - begin > KEPT:
                mark = f"{secret}-{len(texts)}"
                texts[mark] = yield from _decode(line, cuts)
                parts.append(line[copied : begin + 1] + mark.encode())
                copied = end
            at = end + 1
    except (_NoString, ValueError):
        return None
    raise TooComplex


def _find_quote(line: bytes, at: int) -> Generator[None, None, int]:
    while at < len(line):
        found = line.find(b'"', at, at + PIECE)
        if found >= 0:
            return found
        at += PIECE
        yield
    return len(line)


def _cuts(line: bytes, at: int) -> Generator[None, None, list[int]]:
    """Where the pieces of a string that begins at `at` meet, and at last where it ends."""
    cuts = [at]
    quote = line.find(b'"', at, at + PIECE)
    if quote >= 0 and line.find(b"\\", at, quote) < 0:  # most strings are short: to copy a piece for each adds up
        return [at, quote]
    while True:
        # What is escaped hides nothing any more: a quote that is left ends the string.
        seen = line[at : at + PIECE].replace(rb"\\", b"..").replace(rb"\"", b"..")
        end = seen.find(b'"')
        if end >= 0:
            cuts.append(at + end)
            return cuts
        size = _whole_characters(seen)
        if not size or at + PIECE >= len(line):
            raise _NoString
        at += size
        cuts.append(at)
        yield


def _whole_characters(seen: bytes) -> int:
    """How much of a piece of a string can be decoded without what follows."""
    end = len(seen)
    escape = seen.find(b"\\", max(0, end - 2 * _ESCAPE))
    if escape >= 0:
        return escape - (_ESCAPE if _LOW.match(seen, escape) and seen[escape - _ESCAPE : escape - 4] == rb"\u" else 0)
    while end and seen[end - 1] in _REST_OF_CHARACTER:
        end -= 1
    return max(0, end - 1) if end and seen[end - 1] >= _REST_OF_CHARACTER.stop else end


def _decode(line: bytes, cuts: list[int]) -> Generator[None, None, str]:
    done: list[str] = []
    for at, end in pairwise(cuts):
        quoted = b'"%b"' % line[at:end]
        try:
            done.append(msgspec.json.decode(quoted, type=str))
        except msgspec.DecodeError:
            # Half an emoji, as in `jsonrpc`: JSON, but not Unicode.
            done.append(json.loads(quoted).encode(errors="replace").decode())
        yield
    return "".join(done)
