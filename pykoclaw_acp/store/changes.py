"""Notices that the database was written, by whatever program."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

LOOK: Final = 0.25  # s; two calls of stat(2), which is next to nothing on an idle machine


class Changes:
    """Sets events when something may have been committed, within half a second.

    Every commit changes the size or the time of the database or of its write-ahead log. SQLite's
    own answer, `PRAGMA data_version`, would not count what this process writes for others.
    """

    def __init__(self, path: Path) -> None:
        self._files = [os.fspath(path), f"{path}-wal"]
        self._listening: list[asyncio.Event] = []

    def tell(self, event: asyncio.Event) -> None:
        """Set this event at each change from now on; the listener clears it."""
        self._listening.append(event)

    async def run(self) -> None:
        """Look until cancelled."""
        seen, unsure = self._look(), False
        while True:
            await asyncio.sleep(LOOK)
            before, seen = seen, self._look()
            changed = seen != before
            if changed or unsure:
                for event in self._listening:
                    event.set()
            # Times of files are coarse: what was written right after this look may not show.
            unsure = changed

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state(file) for file in self._files]


def _state(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
