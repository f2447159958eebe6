"""Notices what other programs commit to the database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Final

import structlog

from pykoclaw_acp.store.database import Database, DatabaseClosed
from pykoclaw_acp.store.sqlite import sqlite3

LOOK: Final = 0.25  # s; two calls of stat(2), which is next to nothing on an idle machine

log: Final = structlog.get_logger()

_Look = tuple[tuple[int, int, int] | None, ...]


class Changes:
    """Sets events when another program may have committed; this process's own commits do not
    count.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listening: list[asyncio.Event] = []

    def tell(self, event: asyncio.Event) -> None:
        """Set this event at each change from now on; the listener clears it."""
        self._listening.append(event)

    async def run(self) -> None:
        """Look until cancelled, or until the database is closed."""
        seen, version = self._look(), -1
        unsure = True
        while True:
            await asyncio.sleep(LOOK)
            now = self._look()
            # Times of files are coarse: what is written right after a look may not show.
            changed, seen = now != seen, now
            if not (changed or unsure):
                continue
            unsure = changed
            try:
                found = await self._database.data_version()
            except DatabaseClosed:
                return
            except sqlite3.Error as error:
                log.debug("The database was not looked at", action="look_later", error=str(error))
                unsure = True
                continue
            if found != version:
                version = found
                for event in self._listening:
                    event.set()

    def _look(self) -> _Look:
        return tuple(self._stats())

    def _stats(self) -> Iterator[tuple[int, int, int] | None]:
        path = os.fspath(self._database.path)
        for name in (path, f"{path}-wal"):
            try:
                found = os.stat(name)
            except OSError:
                yield None
            else:
                yield found.st_ino, found.st_size, found.st_mtime_ns
