"""A worker's frames on disk, while no daemon takes them: a file of their lines, in order, without gaps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from pykoclaw_acp.worker.frames import FromWorker, Numbered, check_order, decode_from_worker

CHUNK: Final = 256 * 1024  # bytes read at once
BATCH: Final = 500  # frames of a dead worker that are handed on at once, at most
BATCH_SIZE: Final = 4 * 1024 * 1024  # bytes of them, after which no further one is added

log: Final = structlog.get_logger()


class NumberedLine(NamedTuple):
    """A frame as it is sent, with its newline."""

    n: int
    data: bytes


class Spool:
    """The file at `path`, made when it is first needed, for this user alone (0600); its directory exists.

    `last` is the number of its last line, 0 when it is empty. Raises OSError when it cannot be written; then it is as
    it was before.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._first = 0
        self._next = 0  # where the next line to send begins
        self.last = 0
        self.size = 0

    def append(self, lines: Sequence[NumberedLine], sent: int) -> None:
        """Write lines that follow the last one; those up to number `sent` need not be read again."""
        self._write(b"".join(line.data for line in lines))
        if sent >= self.last:
            self._next = self.size + sum(len(line.data) for line in lines if line.n <= sent)
        if not self.last:
            self._first = lines[0].n
        self.last = lines[-1].n
        self.size += sum(len(line.data) for line in lines)

    def note(self, line: bytes) -> None:
        """Write a line without a number, as the very last thing."""
        self._write(line)

    def read(self) -> list[bytes]:
        """The next lines to send, some of them."""
        data = os.pread(self._file, CHUNK, self._next)
        while not data.count(b"\n"):
            data += os.pread(self._file, CHUNK, self._next + len(data))
        data = data[: data.rindex(b"\n") + 1]
        self._next += len(data)
        return data.splitlines(keepends=True)

    def rewind(self, after: int) -> None:
        """The next line to send is the one that follows number `after`."""
        self._next = 0
        skip = after - self._first + 1
        while skip > 0:
            data = os.pread(self._file, CHUNK, self._next)
            count = data.count(b"\n")
            if count < skip:
                skip -= count
                self._next += len(data)
                continue
            for line in data.splitlines(keepends=True)[:skip]:
                self._next += len(line)
            skip = 0

    def clear(self) -> None:
        """Everything in it was acknowledged."""
        os.ftruncate(self._file, 0)
        self._first = self.last = self.size = self._next = 0

    def _write(self, data: bytes) -> None:
        if self._file < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            raise


def read_spool(path: Path, after: int) -> Iterator[list[FromWorker]]:
    """What a dead worker left and had not told up to frame `after`, in batches, in order.

    Ends at what cannot be read: it may have died while it wrote that line. Raises ValueError where a frame is missing.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
    except OSError:
        return
    batch: list[FromWorker] = []
    size = 0
    with file:
        for line in file:
            try:
                frame = decode_from_worker(line)
            except ValueError:
                log.warning("A worker's spool ends in a broken line", action="spool_broken", file=path.name)
                break
            if isinstance(frame, Numbered):
                if frame.n <= after:
                    continue
                check_order(frame, after)
                after = frame.n
            batch.append(frame)
            size += len(line)
            if len(batch) == BATCH or size >= BATCH_SIZE:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch
