"""Which entries a transcript holds, found from its end backwards without parsing it."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from pykoclaw_acp.system.regular_files import opened

STEP: Final = 256 * 1024  # bytes
MOST: Final = 256 * 1024 * 1024  # bytes that are searched


def holding(path: str, uuids: Collection[str]) -> set[str] | None:
    """Return those of the entries that are in the file; None if that cannot be said."""
    wanted = {f'"uuid":"{one}"'.encode(): one for one in uuids}
    longest = max(map(len, wanted), default=0)
    found: set[str] = set()
    try:
        with opened(path) as descriptor:
            end = size = os.fstat(descriptor).st_size
            while end > 0 and wanted:
                if size - end > MOST:
                    return None
                begin = max(0, end - STEP)
                piece = os.pread(descriptor, end - begin + longest, begin)
                here = [mark for mark in wanted if mark in piece]
                found.update(wanted.pop(mark) for mark in here)
                end = begin
    except OSError:
        return None
    return found
