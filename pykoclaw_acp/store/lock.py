"""One server per data directory: a lock that the kernel frees when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from pykoclaw_acp.errors import (
    ConfigurationError,
    DataDirectoryLocked,
    Exhausted,
)
from pykoclaw_acp.link.places import DATABASE, LOCK_NAME, SERVES
from pykoclaw_acp.system import shortage, trusted_path
from pykoclaw_acp.system.full_disk import TAKES_NO_FILE


class DataLock:
    """The right to be the server of a data directory, held until `release` or the end of the
    process.

    The lock is flock(2) on `<data_dir>/pykoclaw-acp.lock`. The file is never removed: a new one
    could be locked by a second server while the first still holds the old one.
    """

    def __init__(self, descriptor: int, socket: str | None = None) -> None:
        self._descriptor: int | None = descriptor
        self._socket = socket
        self.serves(False)

    @classmethod
    def acquire(
        cls, data_dir: Path, socket: str | None = None, group: int | None = None
    ) -> DataLock:
        """Lock the directory, created (0700) if it is missing; never waits. Members of `group` are
        trusted.

        The file then holds the pid, on a second line the path of the `socket`, and on a third one
        whether clients can connect there.

        Raises DataDirectoryLocked, naming the holder's pid, if another server runs there, and
        ConfigurationError if the directory cannot be used or other users could change what is in
        it.
        """
        try:
            trusted_path.require(os.fspath(data_dir.parent))
            trusted_path.make(os.fspath(data_dir))
            _require_private(data_dir)
            trusted_path.require(os.fspath(data_dir), group)
            # That may be a link to elsewhere
            trusted_path.require(os.fspath(data_dir / DATABASE), group)
            descriptor = _open(data_dir)
        except OSError as error:
            if (found := shortage.of(error)) is not None:
                raise Exhausted(*found) from error
            raise trusted_path.unusable(
                data_dir, error, "PYKOCLAW_DATA", "The data directory"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = ""
            with contextlib.suppress(IsADirectoryError):  # no file could be made
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").partition("\n")[0]
            os.close(descriptor)
            raise DataDirectoryLocked(
                f"Another pykoclaw-acp server (pid {holder or 'unknown'}) uses the data directory {data_dir}. "
                "Stop it, or set PYKOCLAW_DATA to another directory."
            ) from None
        return cls(descriptor, socket)

    def serves(self, serving: bool) -> None:
        """Write down whether clients can connect; without the file's words, the lock holds."""
        if self._descriptor is None:
            return
        lines = [str(os.getpid())]
        if self._socket is not None:
            lines += [self._socket, *([SERVES] if serving else [])]
        data = os.fsencode("".join(f"{line}\n" for line in lines))
        with contextlib.suppress(OSError):  # a full or read-only disk
            os.pwrite(self._descriptor, data, 0)
            os.ftruncate(self._descriptor, len(data))

    def release(self) -> None:
        """Release the lock; further calls do nothing."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _open(data_dir: Path) -> int:
    """Open the lock file; on a disk that takes no new file the existing one, else the directory."""
    # Descriptors are close-on-exec in Python, so no child that is exec'd keeps the lock.
    path = data_dir / LOCK_NAME
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in TAKES_NO_FILE:
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)


def _require_private(data_dir: Path) -> None:
    """Raises ConfigurationError unless the directory is ours and not everybody can write to it."""
    status = data_dir.stat()
    if status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"The data directory {data_dir} belongs to user {status.st_uid}, not to you (user {os.geteuid()}). "
            "Set PYKOCLAW_DATA to a directory of your own."
        )
    if status.st_mode & stat.S_IWOTH:
        raise ConfigurationError(
            f"Everybody can write to the data directory {data_dir}. Restrict it with `chmod o-w {data_dir}`."
        )
