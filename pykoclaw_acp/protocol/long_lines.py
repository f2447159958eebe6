"""Stepwise decoding of long JSON lines: long strings are extracted first, then the short rest is
decoded.

msgspec decodes a line in one call, which takes milliseconds per MiB and blocks the event loop. Here
long strings are decoded in pieces, and replaced in the line by marks that no client can know. The
number and depth of the other values are checked before anything is built.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import msgspec

# Bytes of a line; up to here it is decoded in one call, within half a millisecond
LONG: Final = 256 * 1024
PIECE: Final = 64 * 1024  # bytes that a step works on
KEPT: Final = 1100  # bytes of a string that stays in the line: an id, a key
MOST_VALUES: Final = 20_000  # in a line; some milliseconds' work
MOST_DEPTH: Final = 100  # of values inside of each other
MOST_BYTES: Final = 3 * 512 * 1024  # of a line without its long strings
MOST_TEXT: Final = 12 * 1024 * 1024  # characters of a string that are kept
MOST_DATA: Final = 28 * 1024 * 1024  # of one that is ASCII, as base64 is: a byte each
STEP: Final = 128  # short strings that a step passes

_ESCAPE: Final = 6  # bytes of one, `\\u1234`, at most; a character is up to two of them
_MARK: Final = re.compile(rb'"([0-9a-f]{32}-\d+)"')
_LOW: Final = re.compile(rb"\\u[dD][c-fC-F]")  # how the second of two begins
_REST_OF_CHARACTER: Final = range(0x80, 0xC0)  # bytes of UTF-8
_NO_STRUCTURE: Final = bytes(set(range(256)) - set(b",[]{}"))

RawLine = bytes | bytearray


@dataclass(slots=True)
class LongText:
    """A long string of `size` characters; without pieces if it exceeds `MOST_TEXT`, or `MOST_DATA`
    if it is ASCII.
    """

    size: int = 0
    pieces: list[str] = field(default_factory=list)

    def joined(self) -> Generator[None, None, str]:
        """Join the pieces, in place."""
        text = ""
        for piece in self.pieces:
            text += piece
            yield
        return text


@dataclass(slots=True)
class Short:
    """A line without its long strings; `texts` has these by their marks."""

    line: RawLine
    texts: dict[str, LongText] = field(default_factory=dict)


class TooComplex(Exception):
    """The line has too many values, or too many levels; decoding it would take seconds."""


class NoJson(Exception):
    """A string is not terminated, or is not valid UTF-8."""


def is_simple(line: RawLine) -> bool:
    """Whether the line can be decoded at once; otherwise `shorten` it."""
    return len(line) <= LONG and is_frugal(line)


def is_frugal(line: RawLine) -> bool:
    """Whether the numbers of values and levels are certainly within their limits; characters in
    texts count as well.
    """
    openings = line.count(b"[") + line.count(b"{")
    return openings <= MOST_DEPTH and openings + line.count(b",") <= MOST_VALUES


def released(line: RawLine) -> Generator[None, None, None]:
    """Free a decoded line in steps: to free 60 MiB takes 5 ms in one call. Parts that are
    referenced elsewhere stay.
    """
    if isinstance(line, bytearray):
        with suppress(BufferError):
            while line:
                # More than a half: else nothing is given back
                del line[max(0, len(line) // 2 - PIECE) :]
                yield


def measured(line: RawLine, messages: int = 1) -> Generator[None, None, Short]:
    """A simple line as it is, any other one shortened; raises as `shorten`."""
    return Short(line) if is_simple(line) else (yield from shorten(line, messages))


def shorten(line: RawLine, messages: int = 1) -> Generator[None, None, Short]:
    """Extract the long strings of a line, which may hold as much as this many `messages`. Raises
    TooComplex and NoJson.
    """
    secret = secrets.token_hex(16)
    texts: dict[str, LongText] = {}
    parts: list[RawLine] = []
    budget = _Budget(messages)
    copied = at = count = 0
    while True:
        if count % STEP == 0:
            yield
        count += 1
        begin = yield from _find_quote(line, at, budget)
        if begin == len(line):
            if not texts:
                return Short(line)
            parts.append(line[copied:])
            return Short(b"".join(parts), texts)
        cuts = yield from _cuts(line, begin + 1)
        end = cuts[-1]
        if end - begin > KEPT:
            mark = f"{secret}-{len(texts)}"
            texts[mark] = yield from _decode(line, cuts)
            parts += (line[copied : begin + 1], mark.encode())
            copied = end
            budget.spend(len(mark))
        else:
            budget.spend(end - begin)
        at = end + 1


def restored(part: bytes, texts: Mapping[str, LongText]) -> Generator[None, None, bytes]:
    """A part of a shortened line with its long strings in the place of their marks."""
    parts: list[bytes] = []
    copied = 0
    for found in _MARK.finditer(part):
        if (text := texts.get(found[1].decode())) is None:
            continue
        parts.append(part[copied : found.start() + 1])
        for piece in text.pieces:
            parts.append(msgspec.json.encode(piece)[1:-1])
            yield
        copied = found.end() - 1
    return b"".join((*parts, part[copied:])) if parts else part


def characters(part: bytes, texts: Mapping[str, LongText]) -> int:
    """About the length of a part of a shortened line with its long strings."""
    marks = (found[1].decode() for found in _MARK.finditer(part))
    return len(part) + sum(texts[mark].size for mark in marks if mark in texts)


class _Budget:
    """Limits of what a line may hold outside of its long strings."""

    def __init__(self, messages: int) -> None:
        self._bytes = MOST_BYTES * messages
        self._values = MOST_VALUES * messages
        self._depth = 0

    def spend(self, size: int) -> None:
        """Count the bytes of a string."""
        self._bytes -= size
        if self._bytes < 0:
            raise TooComplex

    def look(self, outside: RawLine) -> None:
        """Count the values in a piece of the line outside of strings."""
        self.spend(len(outside))
        marks = outside.translate(None, _NO_STRUCTURE)
        self._values -= len(marks) - marks.count(b"]") - marks.count(b"}")
        if self._values < 0:
            raise TooComplex
        for mark in marks:
            if mark in b"[{":
                self._depth += 1
                if self._depth > MOST_DEPTH:
                    raise TooComplex
            elif mark in b"]}":
                self._depth -= 1


def _find_quote(line: RawLine, at: int, budget: _Budget) -> Generator[None, None, int]:
    """Position of the next quote, or the end."""
    while at < len(line):
        found = line.find(b'"', at, at + PIECE)
        budget.look(line[at : found if found >= 0 else at + PIECE])
        if found >= 0:
            return found
        at += PIECE
        yield
    return len(line)


def _cuts(line: RawLine, at: int) -> Generator[None, None, list[int]]:
    """Positions at which a string that begins at `at` is cut, the last one being its end."""
    cuts = [at]
    quote = line.find(b'"', at, at + PIECE)
    # Most strings are short: to copy a piece for each adds up
    if quote >= 0 and line.find(b"\\", at, quote) < 0:
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
            raise NoJson
        at += size
        cuts.append(at)
        yield


def _whole_characters(seen: RawLine) -> int:
    """Length of the part that can be decoded without the following bytes."""
    end = len(seen)
    escape = seen.find(b"\\", max(0, end - 2 * _ESCAPE))
    if escape >= 0:
        return escape - (
            _ESCAPE
            if _LOW.match(seen, escape) and seen[escape - _ESCAPE : escape - 4] == rb"\u"
            else 0
        )
    while end and seen[end - 1] in _REST_OF_CHARACTER:
        end -= 1
    return max(0, end - 1) if end and seen[end - 1] >= _REST_OF_CHARACTER.stop else end


def _decode(line: RawLine, cuts: list[int]) -> Generator[None, None, LongText]:
    text = LongText()
    is_ascii = True
    for at, end in pairwise(cuts):
        quoted = b'"%b"' % bytes(line[at:end])
        try:
            piece = msgspec.json.decode(quoted, type=str)
        except msgspec.DecodeError:
            # Half an emoji, as in `jsonrpc`: JSON, but not Unicode.
            try:
                piece = json.loads(quoted).encode(errors="replace").decode()
            except ValueError:
                raise NoJson from None
        except UnicodeError:
            raise NoJson from None
        text.size += len(piece)
        is_ascii = is_ascii and piece.isascii()
        if text.size <= (MOST_DATA if is_ascii else MOST_TEXT):
            text.pieces.append(piece)
        else:
            text.pieces.clear()
        yield
    return text
