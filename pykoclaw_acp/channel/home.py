"""The data directory of a worker, held by a descriptor, which follows it when it is moved."""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

_GONE: Final = " (deleted)"  # proc(5), fd/


class Held(NamedTuple):
    """Location of a held directory; inode 0: none is held."""

    path: str = ""
    device: int = 0
    inode: int = 0
    deleted: bool = False


def is_deleted(status: os.stat_result, link: str) -> bool:
    """Whether a descriptor's directory was deleted; `link` is where its entry in /proc
    points to.
    """
    return not status.st_nlink or link.endswith(_GONE)


class HeldDirectory:
    """An O_PATH descriptor of a directory: it gives no access to the files inside."""

    def __init__(self, path: str) -> None:
        """Hold the directory at `path`, if there is one."""
        self._descriptor = -1
        self._hold(path)

    def where(self) -> Held:
        """Current location."""
        if self._descriptor < 0:
            return Held()
        status = os.fstat(self._descriptor)
        path = os.readlink(f"/proc/self/fd/{self._descriptor}")
        return Held(
            path.removesuffix(_GONE), status.st_dev, status.st_ino, is_deleted(status, path)
        )

    def reopen_if_deleted(self, path: str) -> None:
        """Hold the directory at `path` if none is held, or the held one was deleted."""
        if self._descriptor < 0 or self.where().deleted:
            self._hold(path)

    def close(self) -> None:
        """Close the descriptor."""
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
