"""The condition of the database: plain data."""

from __future__ import annotations

from enum import StrEnum


class DatabaseState(StrEnum):
    """Whether the database can be written, and if not, what keeps it from that."""

    WRITABLE = "writable"  # commits are attempted
    LOCKED = "locked"  # another program holds the write lock beyond a short wait
    BLOCKED = "blocked"  # the disk is full, over quota or read-only, or has an error
    DAMAGED = "damaged"  # a part of the file, which others may not need
    GONE = "gone"  # the file was removed or replaced
