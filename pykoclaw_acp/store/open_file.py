"""Identity of the database's open files, to detect that one was replaced, moved or truncated."""

from __future__ import annotations

import errno
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from pykoclaw_acp.store.condition import FileGone, KeptOrNot

# The index of the write-ahead log: page size and number of the last frame
# (https://sqlite.org/walformat.html).
_HEADER: Final = struct.Struct("=IIIBBHI")
_HEADER_SIZE: Final = 48  # bytes; there are two copies, which differ while one is written
_VERSION: Final = 3007000
_LOG_HEADER: Final = 32  # bytes
_FRAME_HEADER: Final = 24  # bytes
_OPEN_FILES: Final = "/proc/self/fd"
_REMOVED: Final = " (deleted)"  # how the kernel ends such a path
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


class GoneAfterCommit(FileGone, KeptOrNot):
    """The file was moved during a commit."""


class UnseenAfterCommit(OSError, KeptOrNot):
    """The file could not be checked after a commit."""


class LogMissing(FileGone):
    """Only the WAL was removed; its contents can still be checkpointed."""


class OpenFile:
    """Device and inode of the database, of its WAL and of the WAL's index, as far as they exist."""

    def __init__(self, path: Path, link: Path | None = None) -> None:
        """Record the files at `path`, which the caller has just opened, and where `link` leads, by
        which it was found.
        """
        self._path = str(path)
        self._log = f"{path}-wal"
        self._shared = f"{path}-shm"
        self._written_names = tuple(dict.fromkeys((self._path, self._log, str(link or path))))
        self._known = {
            name: _place(name)
            for name in (*self._written_names, self._shared)
            if os.path.exists(name)
        }
        self._index = os.open(self._shared, os.O_RDONLY) if self._shared in self._known else None
        self.log_is_new = False
        """Whether there was no WAL when the file was opened, and a commit has met one."""

    def check(self) -> None:
        """Raises FileGone if a path leads to another file or the WAL was truncated; takes 8 µs.

        Raises OSError if that cannot be checked, as on a disk with errors.
        """
        for name in self._known:
            self._check(name)
        if self._index is None:
            return
        written, found = self._written(), os.stat(self._log).st_size
        if found < written == self._written():  # else another program has truncated it in between
            raise FileGone(
                f"The write-ahead log {self._log} was cut to {found} bytes while it was in use, of {written}. What was "
                "cut off is lost, and nothing is written any more that could harm the rest. `pykoclaw-acp restart` "
                "goes on with what the database file has."
            )

    def cause(self, error: Exception) -> Exception:
        """What is behind an error of a reader: FileGone, or the error itself. What was cut off is to
        SQLite an error of the disk.
        """
        with suppress(OSError):
            try:
                self.check()
            except FileGone as gone:
                return gone
        return error

    def check_after_commit(self) -> None:
        """Raises GoneAfterCommit if the database or its WAL was moved, UnseenAfterCommit if that
        cannot be checked.
        """
        try:
            for name in self._written_names:
                if name in self._known:
                    self._check(name)
            self.log_is_new = self._log not in self._known and os.path.exists(self._log)
        except FileGone as error:
            raise GoneAfterCommit(str(error)) from None
        except OSError as error:
            raise UnseenAfterCommit(error.errno, error.strerror, error.filename) from error

    def close(self) -> None:
        """Close the index; only after SQLite has, since closing it drops SQLite's locks."""
        if self._index is not None:
            index, self._index = self._index, None
            with suppress(OSError):  # it was only read, and the descriptor is released in any case
                os.close(index)

    def _check(self, name: str) -> None:
        try:
            found = _place(name)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            kind = LogMissing if name == self._log else FileGone
            now = _now_at(self._known[name])
            what = "moved or removed" if now is None else f"moved to {now}"
            raise kind(
                f"The file {name} is not there any more ({error.strerror}): it was {what} while it was in use. "
                "Put it back, or stop the daemon and start it where the file is now."
            ) from None
        if found != self._known[name]:
            now = _now_at(self._known[name])
            first = "" if now is None else f" The first one is {now} now."
            meanwhile = ""
            if name not in (self._log, self._shared) and self._log_stayed():
                meanwhile = (
                    f", move {self._log} and {self._shared} away, which belong to the first one and would damage "
                    "another,"
                )
            raise FileGone(
                f"Another file is at {name} (inode {found[1]}) than the one that was opened (inode "
                f"{self._known[name][1]}): it was replaced while it was in use.{first} Put the first one back; or "
                f"stop the daemon{meanwhile} and start it again."
            )

    def _log_stayed(self) -> bool:
        try:
            return _place(self._log) == self._known.get(self._log)
        except OSError:
            return False

    def _written(self) -> int:
        """Size of the WAL according to its index."""
        assert self._index is not None
        copies = os.pread(self._index, 2 * _HEADER_SIZE, 0)
        if len(copies) < 2 * _HEADER_SIZE or copies[:_HEADER_SIZE] != copies[_HEADER_SIZE:]:
            return 0
        version, _, _, _, _, page, frames = _HEADER.unpack_from(copies)
        size = 65536 if page == 1 else page
        return (
            _LOG_HEADER + frames * (_FRAME_HEADER + size) if version == _VERSION and frames else 0
        )


def _now_at(known: tuple[int, int]) -> str | None:
    """Where the kernel says that an open file of this process is; None if it was removed."""
    with suppress(OSError):
        for descriptor in os.listdir(_OPEN_FILES):
            link = f"{_OPEN_FILES}/{descriptor}"
            with suppress(OSError):  # closed meanwhile
                if _place(link) == known and not (path := os.readlink(link)).endswith(_REMOVED):
                    return path
    return None


def _place(name: str) -> tuple[int, int]:
    status = os.stat(name)
    return status.st_dev, status.st_ino
