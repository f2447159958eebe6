"""The database: one writer with group commit, two readers, one file that pykoclaw's other programs use as well."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pykoclaw_acp.clock import Clock
from pykoclaw_acp.errors import DatabaseUnusable
from pykoclaw_acp.store import clocks, journal_mode, migrate, preflight
from pykoclaw_acp.store.batch import BatchWriter
from pykoclaw_acp.store.connection import Connection
from pykoclaw_acp.store.group_commit import GroupCommit
from pykoclaw_acp.store.readers import ReaderPool
from pykoclaw_acp.store.sqlite import ENGINE, sqlite3
from pykoclaw_acp.store.units import Conflict, DatabaseClosed, NewEvent, Statement, Unit

__all__ = [
    "Conflict",
    "Database",
    "DatabaseClosed",
    "IntegrityError",
    "NewEvent",
    "OperationalError",
    "Statement",
    "Unit",
]

IntegrityError = sqlite3.IntegrityError
"""A constraint of the schema refused a unit."""

OperationalError = sqlite3.OperationalError
"""SQLite could not do it now: a lock that another process holds, a full disk."""

READERS = 2
CLOSING_BUSY_TIMEOUT_MS = 500
"""How long the clean-up at the end may wait for another process; the next start does what was left."""


class Database:
    """The open database. All of its coroutines may be called by any number of tasks of one event loop."""

    def __init__(
        self, path: Path, writer: Connection, readers: list[Connection], used: journal_mode.JournalMode, clock: Clock
    ) -> None:
        """Use `open`."""
        self.path = path
        self.journal_mode = used
        self.clock = clock
        self._writer = writer
        self._commits = GroupCommit(writer, BatchWriter(relaxed=used.relaxed))
        self._readers = ReaderPool(readers)
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path) -> Database:
        """Opens the file, creates it (0600) if it is missing, and brings it up to date.

        Raises DatabaseUnusable, with the file untouched, if it is damaged, newer than this program, or cannot be read
        and written. The caller holds the data directory's lock.
        """
        migrations = migrate.load()
        try:
            await asyncio.to_thread(preflight.verify, path, migrations)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            async with AsyncExitStack() as stack:
                writer = await _connect(stack, path)
                settled = await writer.run(partial(_prepare, migrations=migrations, path=path))
                clock = await writer.run(clocks.go_on)
                readers = [await _connect(stack, path) for _ in range(READERS)]
                for reader in readers:
                    await reader.run(partial(_prepare_reader, settled=settled))
                stack.pop_all()
        except OSError as error:
            raise DatabaseUnusable(f"The database {path} cannot be used: {error.strerror}.") from error
        except sqlite3.Error as error:
            raise preflight.unusable(path, error) from error
        return cls(path, writer, readers, settled, clock)

    async def commit(self, unit: Unit) -> list[int]:
        """Commits the unit; returns the `seq`s that its events got, in their order.

        Units are committed in the order of the calls. If the caller is cancelled, the unit is committed nevertheless.

        Raises Conflict if a statement changed another number of rows than it demands or if an event's session does not
        exist, sqlite3.Error if SQLite refused (IntegrityError, a full disk, a lock held for longer than 10 s), and
        DatabaseClosed; then nothing of the unit was kept, and no other unit is affected.
        """
        self._require_open()
        return await self._commits.commit(unit)

    async def read(self, sql: str, parameters: tuple[Any, ...] = (), size: int | None = None) -> list[tuple[Any, ...]]:
        """All rows of a query, which sees every unit whose `commit` has returned; never waits for a writer.

        With a `size` none after those whose last columns have that many characters together, but at least one.

        Raises sqlite3.Error if the query is wrong or tries to write, and DatabaseClosed.
        """
        self._require_open()
        return await self._readers.read(sql, parameters, size)

    async def probe(self) -> None:
        """Returns when the writer has answered, be it that another process holds the lock; never if it hangs."""
        if self._closing is None:
            await self._commits.probe()

    async def close(self) -> None:
        """Commits what was queued, refuses what comes later, and closes the file; further calls wait for the first."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._commits.drain()
        await self._readers.close()
        try:
            await self._writer.run(partial(_tidy, settled=self.journal_mode))
        finally:
            await self._writer.close()

    def _require_open(self) -> None:
        if self._closing is not None:
            raise DatabaseClosed(f"the database {self.path} was closed")


async def _connect(stack: AsyncExitStack, path: Path) -> Connection:
    connection = await Connection.open(path)
    stack.push_async_callback(connection.close)
    return connection


def _prepare(
    connection: sqlite3.Connection, migrations: list[migrate.Migration], path: Path
) -> journal_mode.JournalMode:
    settled = journal_mode.settle(connection, ENGINE)
    settled.configure(connection)
    connection.execute("PRAGMA foreign_keys=ON")
    migrate.apply(connection, migrations, path)
    return settled


def _prepare_reader(connection: sqlite3.Connection, settled: journal_mode.JournalMode) -> None:
    settled.configure(connection)
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA query_only=ON")


def _tidy(connection: sqlite3.Connection, settled: journal_mode.JournalMode) -> None:
    connection.execute(f"PRAGMA busy_timeout={CLOSING_BUSY_TIMEOUT_MS}")
    # Another process may hold the lock, or the disk be full: neither is a reason not to close.
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA optimize")
    if settled.own_checkpoints:
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
