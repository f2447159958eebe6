"""Mounted file systems, as the kernel lists them; nothing of them is asked."""

from __future__ import annotations

import os
import re
import time
from typing import Final

MOUNTS: Final = "/proc/self/mountinfo"  # proc_pid_mountinfo(5)
_FRESH: Final = 1.0  # s
_REMOTE: Final = re.compile(
    r"fuse|nfs|cifs|smb|9p|afs|autofs|beegfs|ceph|coda|glusterfs|gpfs|lustre|ncp|virtiofs"
)
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mounts:
    """Mounts whose servers may be gone: file systems of a network, or of another process."""

    def __init__(self, listed: str = MOUNTS) -> None:
        self._listed = listed
        self._points: list[str] = []
        self._read_at = -_FRESH

    def disk_of(self, path: str) -> str:
        """The mount point of such a file system that the path is on, else the path itself: what may
        hang as one. Symbolic links are not followed.
        """
        if time.monotonic() - self._read_at > _FRESH:
            self._points, self._read_at = _remote(self._listed), time.monotonic()
        found = [one for one in self._points if path == one or path.startswith(f"{one}/")]
        return max(found, key=len, default=path)


def _remote(listed: str) -> list[str]:
    try:
        with open(listed, "rb") as file:
            return [point for point, kind in map(_parsed, file) if _REMOTE.match(kind)]
    except OSError:
        return []


def _parsed(line: bytes) -> tuple[str, str]:
    """Mount point and type of file system; of a line of another form, empty ones."""
    before, _, after = line.partition(b" - ")
    fields, (kind, *_) = before.split(b" "), after.split(b" ")
    if len(fields) < 5:
        return "", ""
    point = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), fields[4])
    return os.fsdecode(point), os.fsdecode(kind)
