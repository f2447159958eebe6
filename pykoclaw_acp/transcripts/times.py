"""When an entry of a transcript was written, as the CLI says."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Final

import msgspec

from pykoclaw_acp.system.regular_files import opened

NEWEST: Final = 4 * 1024 * 1024  # bytes at the end of a transcript in which the entry is looked for


class _Entry(msgspec.Struct):
    uuid: str | None = None
    timestamp: str | None = None


_entry: Final = msgspec.json.Decoder(_Entry)


def written_at(path: str, uuid: str) -> datetime | None:
    """The time of an entry; None if it is not among the newest ones, or has no time."""
    try:
        with opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            end = os.pread(descriptor, NEWEST, max(size - NEWEST, 0))
    except OSError:
        return None
    wanted = uuid.encode()
    for line in reversed(end.split(b"\n")):
        if wanted in line and (found := _time(line, uuid)) is not None:
            return found
    return None


def _time(line: bytes, uuid: str) -> datetime | None:
    try:
        entry = _entry.decode(line)
        if entry.uuid != uuid:
            return None
        at = datetime.fromisoformat(entry.timestamp or "")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
