"""The data directory that a worker belongs to, held by a descriptor: it says where that is, however it was moved."""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

_GONE: Final = " (deleted)"  # proc(5), fd/


class Held(NamedTuple):
    """Where a held directory is now; an inode of 0: none is held."""

    path: str = ""
    device: int = 0
    inode: int = 0
    deleted: bool = False


def is_deleted(status: os.stat_result, link: str) -> bool:
    """Whether a descriptor's directory was deleted; `link` is where its entry in /proc points to."""
    return not status.st_nlink or link.endswith(_GONE)


class HeldDirectory:
    """An O_PATH descriptor of the directory, for as long as the process lives: it gives no access to what is inside."""

    def __init__(self, path: str) -> None:
        """Holds nothing if there is no such directory."""
        self._descriptor = -1
        self._hold(path)

    def where(self) -> Held:
        """Where the directory is."""
        if self._descriptor < 0:
            return Held()
        status = os.fstat(self._descriptor)
        path = os.readlink(f"/proc/self/fd/{self._descriptor}")
        return Held(path.removesuffix(_GONE), status.st_dev, status.st_ino, is_deleted(status, path))

    def follow(self, path: str) -> None:
        """A daemon that owns the worker is at `path`; a directory that was not deleted is held on."""
        if self._descriptor < 0 or self.where().deleted:
            self._hold(path)

    def close(self) -> None:
        """Hold nothing any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _hold(self, path: str) -> None:
        if not path:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.close()
            self._descriptor = descriptor
