"""The spool: a file for a worker's frames while no daemon takes them; lines in order, without gaps.

If the file is truncated, removed or replaced by others, the worker begins a new one with the frames
that it can still read, and a Gap for the rest.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import structlog

from pykoclaw_acp.channel import salvage
from pykoclaw_acp.channel.frames import Gap, Numbered, encode
from pykoclaw_acp.system import trusted_path

CHUNK: Final = 256 * 1024  # bytes read at once

log: Final = structlog.get_logger()


class NumberedLine(NamedTuple):
    """A frame as it is sent, with its newline; a Gap's number is its last."""

    n: int
    data: bytes


class _LineHead(msgspec.Struct):
    n: int
    first: int = 0
    epoch: int = 0


_head: Final = msgspec.json.Decoder(_LineHead)


class Spool:
    """The file at `path`, created when it is first needed, mode 0600.

    `last` is the number of its last line, 0 if it is empty. A failed write raises OSError, which
    names a file, and changes nothing.
    """

    def __init__(self, path: str, epoch: int) -> None:
        self._path = path
        self._epoch = epoch
        self._file = -1
        self._first = 0
        self._marks: list[tuple[int, int]] = []  # some lines' numbers, and where they begin
        self._next = 0  # where the next line to send begins
        self._sent = 0  # number of the line before it
        self.last = 0
        self.size = 0

    def append(self, lines: Sequence[NumberedLine], sent: int) -> None:
        """Append lines; those up to number `sent` have been sent."""
        try:
            self._check()
            self._write(b"".join(line.data for line in lines))
        except OSError as error:
            error.filename = error.filename or self._path  # an open file's error does not say it
            raise
        if not self.last:
            self._first = lines[0].n
        if not self._marks or self.size - self._marks[-1][1] >= CHUNK:
            self._marks.append((lines[0].n, self.size))
        if sent >= self.last:
            self._next = self.size + sum(len(line.data) for line in lines if line.n <= sent)
            self._sent = sent
        self.last = lines[-1].n
        self.size += sum(len(line.data) for line in lines)

    def note(self, line: bytes) -> None:
        """Append a last line, without a number."""
        self._check()
        self._write(line)

    def read(self) -> list[NumberedLine]:
        """Some of the next lines to send."""
        if lines := self._read():
            return lines
        self._renew()
        self.rewind(self._sent)
        return self._read()

    def rewind(self, after: int) -> None:
        """Continue with the line that follows number `after`."""
        if not self.last:
            return
        at = bisect_right(self._marks, (after + 1, self.size)) - 1
        self._sent, self._next = (
            (self._marks[at][0] - 1, self._marks[at][1]) if at >= 0 else (self._first - 1, 0)
        )
        while self._sent < after and self._sent < self.last:
            begins = self._next
            lines = self._read()
            if not lines:
                self._renew()
                self.rewind(after)
                return
            within = [line for line in lines if line.n <= after]
            if len(within) < len(lines):
                self._next = begins + sum(len(line.data) for line in within)
                self._sent = after
        self._sent = max(self._sent, after)

    def clear(self) -> None:
        """Empty the file: everything in it was acknowledged. Raises OSError, and changes nothing then."""
        os.ftruncate(self._file, 0)
        self._first = self._sent = self.last = self.size = self._next = 0
        self._marks.clear()

    def _read(self) -> list[NumberedLine]:
        """Lines from the current position on, as long as they have the expected numbers."""
        data = b""
        while not data.count(b"\n"):
            more = os.pread(self._file, CHUNK, self._next + len(data))
            if not more:
                return []
            data += more
        lines: list[NumberedLine] = []
        for line in data[: data.rindex(b"\n") + 1].splitlines(keepends=True):
            try:
                head = _head.decode(line)
            except ValueError:
                break
            begins = head.first or head.n
            if not begins <= self._sent + 1 <= head.n or head.epoch != self._epoch:
                break
            told = begins <= self._sent  # of a gap, the first part
            rest = encode(Gap(epoch=head.epoch, n=head.n, first=self._sent + 1)) if told else line
            lines.append(NumberedLine(head.n, rest))
            self._sent = head.n
            self._next += len(line)
        return lines

    # --- the file

    def _check(self) -> None:
        """Begin a new file if others have removed or changed this one."""
        if self._file < 0:
            return
        ours = os.fstat(self._file)
        with suppress(FileNotFoundError):
            there = os.lstat(self._path)
            if (there.st_dev, there.st_ino, there.st_size) == (ours.st_dev, ours.st_ino, self.size):
                return
        self._renew()
        self.rewind(self._sent)

    def _renew(self) -> None:
        """Begin a new file with the readable frames of the old one."""
        log.warning(
            "The spool was changed, a new one is begun", action="spool_renewed", file=self._path
        )
        path = f"{self._path}.new"
        with suppress(FileNotFoundError):
            os.unlink(path)
        file = self._open(path)
        size = 0
        marks: list[tuple[int, int]] = []
        try:
            for frame in self._readable():
                line = encode(frame)
                if not marks or size - marks[-1][1] >= CHUNK:
                    marks.append((frame.first if isinstance(frame, Gap) else frame.n, size))
                _write_all(file, line)
                size += len(line)
            if os.path.isdir(self._path) and not os.path.islink(self._path):
                os.rename(self._path, f"{self._path}.replaced")
            os.replace(path, self._path)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self.size, self._marks = file, size, marks

    def _readable(self) -> Iterator[Numbered]:
        if not self.last:
            return
        with os.fdopen(os.dup(self._file), "rb") as old:
            old.seek(0)
            for frame in salvage.frames(old, self._epoch, self._first - 1, self.last):
                if isinstance(frame, Numbered):
                    yield frame

    def _write(self, data: bytes) -> None:
        if self._file < 0:
            self._file = self._open(self._path)
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise

    def _open(self, path: str) -> int:
        trusted_path.make(os.path.dirname(path))
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, 0o600)


def _write_all(file: int, data: bytes) -> None:
    """Write all of it, in as many steps as it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
