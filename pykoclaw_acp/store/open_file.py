"""The database's files as they were opened, to notice that the path leads to others."""

from __future__ import annotations

import os
from pathlib import Path

from pykoclaw_acp.store.condition import FileGone


class GoneAfterCommit(FileGone):
    """The file was moved while a transaction was committed: whether that will be found again is not known."""


class OpenFile:
    """Device and inode of the database, and of its write-ahead log where it has one."""

    def __init__(self, path: Path) -> None:
        """Takes down what is at `path` now, which the caller has just opened."""
        self._path = str(path)
        self._known = {name: _place(name) for name in (self._path, f"{self._path}-wal") if os.path.exists(name)}

    def check(self) -> None:
        """Raises FileGone unless the paths lead to the files that were opened. Costs about 5 µs."""
        for name, place in self._known.items():
            try:
                found = _place(name)
            except OSError as error:
                raise FileGone(
                    f"The file {name} is not there any more ({error.strerror}): it was moved or removed while it was "
                    "in use. Put it back, or stop the daemon and start it where the file is now."
                ) from None
            if found != place:
                raise FileGone(
                    f"Another file is at {name} (inode {found[1]}) than the one that was opened (inode {place[1]}): it "
                    "was replaced while it was in use. Put the first one back, or stop the daemon and start it again."
                )

    def check_after_commit(self) -> None:
        """Raises GoneAfterCommit in the cases of `check`."""
        try:
            self.check()
        except FileGone as error:
            raise GoneAfterCommit(str(error)) from None


def _place(name: str) -> tuple[int, int]:
    status = os.stat(name)
    return status.st_dev, status.st_ino
