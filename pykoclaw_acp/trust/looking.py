"""Files of others, read within limits: what was looked at, as it was, and what of it could not be
read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.system import shortage
from pykoclaw_acp.system.regular_files import ABSENT
from pykoclaw_acp.trust.below import is_the_kernels
from pykoclaw_acp.trust.content import Stamp

MAX_FILE: Final = 1024 * 1024  # bytes of one file
MAX_BYTES: Final = 32 * 1024 * 1024  # of all files
MAX_ENTRIES: Final = 20_000  # of all directories
MAX_DEPTH: Final = 8
MAX_TIME: Final = 25.0  # s; ends before the wait for a disk that does not answer


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file: `data` is None where it cannot be read or is too large, which `trouble` says;
    `digest` tells it apart.
    """

    path: str
    data: bytes | None
    digest: str
    trouble: str = ""


class Looking:
    """One look at a directory. `stamps` has every path that was looked at, None for those that are
    not there.

    `limit` says in words which limit was reached: then there may be more than was seen. `here`: the
    session's directory, without symbolic links; links to what is around it are not followed, as they
    lead to all that the user has.
    """

    def __init__(self, here: str = "/") -> None:
        self._here = here
        self.stamps: dict[str, Stamp | None] = {}
        self.limit = ""
        self.until = time.monotonic() + MAX_TIME
        self._bytes = 0
        self._entries = 0

    def note_if_late(self) -> bool:
        """Note as `limit` that there is no time for more, if that is so; whether it is."""
        if time.monotonic() <= self.until:
            return False
        self.limit = f"it takes more than {MAX_TIME:g} s"
        return True

    def kind(self, path: str) -> int:
        """The file type bits of the path's mode, behind symbolic links; 0 if nothing is there."""
        try:
            status = os.stat(path)
        except OSError as error:
            self.stamps[path] = None
            # What cannot be looked at is there
            return 0 if error.errno in ABSENT else stat.S_IFREG
        self.stamps[path] = stamp(status)
        return stat.S_IFMT(status.st_mode)

    def read(self, path: str, most: int = MAX_FILE) -> ReadFile | None:
        """The file at the path, of at most so many bytes; None if nothing is there."""
        try:
            # Neither a pipe nor a terminal may make us wait.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            if shortage.of(error) is not None:
                raise  # it says nothing of the file
            self.kind(path)
            if error.errno in ABSENT - {errno.ELOOP}:  # a circle is somebody's mistake
                return None
            return ReadFile(
                path, None, f"unreadable {self.stamps[path]}", f"cannot be read ({error.strerror})"
            )
        try:
            status = os.fstat(descriptor)
            seen = self.stamps[path] = stamp(status)
            if not stat.S_ISREG(status.st_mode):
                return ReadFile(path, None, f"special {seen}", "is not a file")
            large = ReadFile(path, None, f"large {seen}", f"is larger than {most // 1024} KiB")
            if status.st_size > most:
                return large
            if self._bytes > MAX_BYTES:
                self.limit = f"more than {MAX_BYTES // 1024 // 1024} MiB of files"
            if self._bytes > MAX_BYTES or self.note_if_late():
                return ReadFile(path, None, f"unread {seen}", "was not read")
            data = os.read(descriptor, most + 1)
        except OSError as error:
            if shortage.of(error) is not None:
                raise  # it says nothing of the file
            return ReadFile(
                path, None, f"unreadable {error.errno}", f"cannot be read ({error.strerror})"
            )
        finally:
            os.close(descriptor)
        self._bytes += len(data)
        if len(data) > most:  # it has grown meanwhile
            return large
        return ReadFile(path, data, hashlib.sha256(data).hexdigest())

    def files(self, directory: str) -> Iterator[str]:
        """Paths of everything below that is no directory, in order; each directory once, however
        links lead to it.
        """
        yield from self._files(directory, MAX_DEPTH, set())

    def _files(self, directory: str, depth: int, seen: set[tuple[int, int]]) -> Iterator[str]:
        if os.path.islink(directory) and self._is_too_much(target := os.path.realpath(directory)):
            self.limit = f"a link to {target} ({directory})"
            return
        kind = self.kind(directory)
        at = self.stamps[directory]
        if not stat.S_ISDIR(kind) or at is None or at[:2] in seen:
            return
        seen.add(at[:2])
        if depth == 0:
            self.limit = f"directories more than {MAX_DEPTH} deep"
            return
        try:
            names = self._names(directory)
        except OSError as error:
            if shortage.of(error) is not None:
                raise  # it says nothing of the file
            self.limit = f"a directory that cannot be read ({error.strerror}: {directory})"
            return
        for name in names:
            if self.note_if_late():
                return
            path = os.path.join(directory, name)
            kind = self.kind(path)
            if stat.S_ISDIR(kind):
                yield from self._files(path, depth - 1, seen)
            elif kind:
                yield path

    def _is_too_much(self, target: str) -> bool:
        around = target != self._here and f"{self._here}/".startswith(f"{target}/")
        return target == "/" or around or is_the_kernels(target)

    def _names(self, directory: str) -> list[str]:
        names: list[str] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > MAX_ENTRIES:
                    self.limit = f"more than {MAX_ENTRIES} files"
                    break
                names.append(entry.name)
        return sorted(names)


def stamp(status: os.stat_result) -> Stamp:
    """What changes whenever the file does."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def same(stamps: dict[str, Stamp | None]) -> bool:
    """Whether every path is as it was, or still not there."""
    for path, before in stamps.items():
        try:
            now: Stamp | None = stamp(os.stat(path))
        except OSError:
            now = None
        if now != before:
            return False
    return True
