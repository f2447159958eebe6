"""Lines of a file of any size, in little memory: the long strings of a long line are cut while it is
read.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

CHUNK: Final = 256 * 1024  # bytes of a read
LARGE_CHUNK: Final = 4 * 1024 * 1024  # bytes of a read in a line that will not be kept
# Bytes up to which a line stays as it is; one that is a little longer may, too
WHOLE: Final = 512 * 1024
KEPT: Final = 240 * 1024  # bytes of a string in a longer line; with escapes, below a tool's limit
IMAGE: Final = 5 * 1024 * 1024  # bytes of an image, which is kept whole or not at all
_BUDGET: Final = 7 * 1024 * 1024  # bytes of all strings of a line
_OUTSIDE: Final = 512 * 1024  # bytes of a line outside of its strings
_SHORT: Final = 1024  # bytes of a string once the budget is spent

# Possessive, so that a string of escapes takes no memory.
_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_ESCAPES: Final = re.compile(rb"(?:[^\\]|\\u[0-9a-fA-F]{4}|\\[^u])*+", re.DOTALL)
_PLAIN: Final = re.compile(rb'(?<!\\)[^\\"\x80-\xbf]')
_DATA: Final = re.compile(rb'"data"\s*:\s*"\Z')


class Line(NamedTuple):
    """A line from `begin` to `end`, its line end included; `text` is None if it is too complex, or is
    no text.
    """

    begin: int
    end: int
    text: bytes | None


def read(descriptor: int, offset: int, upto: int) -> Iterator[Line]:
    """Complete lines from `offset` on, as far as they end by `upto`; empty ones are left out."""
    pending = bytearray()
    cutter: _Cutter | None = None
    begin = position = offset
    while position < upto:
        size = LARGE_CHUNK if cutter is not None and cutter.hopeless else CHUNK
        chunk = os.pread(descriptor, min(size, upto - position), position)
        if not chunk:
            return
        at = 0
        while (end := chunk.find(b"\n", at)) >= 0:
            if cutter is not None:
                cutter.feed(chunk[at:end])
                text = cutter.text()
                cutter = None
            else:
                pending += chunk[at:end]
                text = bytes(pending)
            pending.clear()
            after = position + end + 1
            if text is None or text.strip():
                yield Line(begin, after, text)
            begin, at = after, end + 1
        position += len(chunk)
        if at == 0 and chunk[-1] == 0 and chunk.count(0) == len(chunk):
            position = _behind_hole(descriptor, position, upto)
            cutter = cutter or _Cutter()
        if cutter is not None:
            cutter.feed(chunk[at:])
        else:
            pending += chunk[at:]
            if len(pending) > WHOLE:
                cutter = _Cutter()
                cutter.feed(bytes(pending))
                pending.clear()


def _behind_hole(descriptor: int, position: int, upto: int) -> int:
    """Where the file goes on if a hole of it begins or continues there: it holds no line end."""
    try:
        return min(os.lseek(descriptor, position, os.SEEK_DATA), upto)
    except OSError as error:
        # Nothing follows; it cannot be told
        return upto if error.errno == errno.ENXIO else position


class _Cutter:
    """Takes a long line in pieces; keeps beginning and end of each long string."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._outside = _OUTSIDE
        self._budget = _BUDGET
        self._open = False  # inside of a string
        self._dangling = False  # the piece before ended with a backslash
        self._image = False
        self._keep = 0
        self._size = 0
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    @property
    def hopeless(self) -> bool:
        """Whether the line will not be kept: it has too much besides strings."""
        return self._outside < 0

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the line."""
        if self.hopeless:
            return
        if b"\0" in piece:  # no JSON has it; a hole in a file, say
            self._outside = -1
            return
        if self._dangling:
            piece, self._dangling = b"\\" + piece, False
        at = 0
        while at < len(piece) and self._outside >= 0:
            if not self._open:
                quote = piece.find(b'"', at)
                outside = piece[at:] if quote < 0 else piece[at : quote + 1]
                self._outside -= len(outside)
                self._out += outside
                at += len(outside)
                if quote >= 0:
                    self._begin()
                continue
            found = _STRING.match(piece, at)
            end = at if found is None else found.end()
            self._add(piece[at:end])
            if end < len(piece) and piece[end] == ord('"'):
                self._end()
                end += 1
            elif end < len(piece):
                self._dangling = True
                return
            at = end

    def text(self) -> bytes | None:
        """The shortened line; None if it has too much besides strings, or a string does not end."""
        return None if self.hopeless or self._open else bytes(self._out)

    def _begin(self) -> None:
        self._open = True
        self._image = _DATA.search(self._out, max(0, len(self._out) - 64)) is not None
        self._keep = min(IMAGE if self._image else KEPT, max(self._budget, _SHORT))
        self._size = self._tail_size = 0
        self._head.clear()
        self._tail.clear()

    def _add(self, part: bytes) -> None:
        room = max(0, self._keep - self._size)
        self._size += len(part)
        self._head += part[:room]
        if self._image:
            return  # cut, it would be no image
        # A copy: the parts of a line of a megabyte are few, and kept until its next ones come.
        self._tail.append(part)
        self._tail_size += len(part)
        while self._tail_size - len(self._tail[0]) >= self._keep // 2:
            self._tail_size -= len(self._tail.popleft())

    def _end(self) -> None:
        self._open = False
        if self._size <= self._keep:
            self._out += self._head
            self._out += b'"'
            self._budget -= self._size
        elif self._image:
            del self._out[-1:]
            self._out += b"null"
        else:
            half = self._keep // 2
            head, tail = _whole_head(bytes(self._head[:half])), self._last(half)
            left = self._size - len(head) - len(tail)
            self._out += head
            self._out += f"\\n… {left} bytes left out …\\n".encode()
            self._out += tail
            self._out += b'"'
            self._budget -= len(head) + len(tail)
        self._head = bytearray()
        self._tail.clear()

    def _last(self, size: int) -> bytes:
        """The end of the string, from where neither an escape nor a character is torn apart."""
        joined = b"".join(self._tail)
        found = _PLAIN.search(joined, max(0, len(joined) - size))
        return b"" if found is None else joined[found.start() :]


def _whole_head(part: bytes) -> bytes:
    """The part without the half of an escape or of a character at its end."""
    found = _ESCAPES.match(part)
    part = part if found is None else part[: found.end()]
    return part.decode(errors="ignore").encode()
