"""One SQLite connection in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from pykoclaw_acp.store.sqlite import aiosqlite, sqlite3

BUSY_TIMEOUT = 10.0
"""Seconds to wait for a lock that another process holds, while nobody is served yet."""

LOCK_WAIT = 1.0
"""Seconds that a commit waits for a lock that another process holds; clients give up after 8 to 10."""

T = TypeVar("T")


class Connection(aiosqlite.Connection):
    """An aiosqlite connection, in autocommit mode, that runs a whole function in its thread."""

    @classmethod
    async def open(cls, path: Path) -> Connection:
        """Raises sqlite3.Error if the file cannot be opened."""
        connect = partial(sqlite3.connect, path, timeout=BUSY_TIMEOUT, isolation_level=None)
        connection = cls(connect, iter_chunk_size=64)
        # A program that ends without closing must end all the same; for the file it is as if it had been killed.
        connection._thread.daemon = True
        await connection
        return connection

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """What `function(connection)` returns or raises; it runs to its end even if the caller is cancelled.

        A transaction takes one trip to the thread so, not one per statement: 0.11 ms instead of 0.34 ms.
        """
        result: T = await self._execute(function, self._conn)  # type: ignore[no-untyped-call]
        return result

    def post(self, function: Callable[[sqlite3.Connection], T], done: Callable[[T], None]) -> None:
        """As `run`, for a function that never raises: its result goes to `done`, in the event loop of the caller.

        Without a task and a future, whose turns in the loop cost more than a small transaction.
        """
        loop, connection = asyncio.get_running_loop(), self._conn
        self._tx.put_nowait((None, lambda: loop.call_soon_threadsafe(done, function(connection))))
