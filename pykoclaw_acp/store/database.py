"""The database: one writer with group commit, two readers, one file that pykoclaw's other programs
use as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from pykoclaw_acp.errors import DamageMet, RowRefused
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.store import history_copy
from pykoclaw_acp.store.batch import BatchWriter
from pykoclaw_acp.store.blob_files import BlobFiles
from pykoclaw_acp.store.condition import FileGone, StoreCondition, is_damage, trouble, unavailable
from pykoclaw_acp.store.connection import Connection
from pykoclaw_acp.store.group_commit import GroupCommit
from pykoclaw_acp.store.open_file import (
    GoneAfterCommit,
    LogMissing,
    OpenFile,
    UnseenAfterCommit,
)
from pykoclaw_acp.store.opening import OpenedDatabase, open_files
from pykoclaw_acp.store.readers import ReaderPool, Rows, rows_of
from pykoclaw_acp.store.sqlite import result_code, sqlite3
from pykoclaw_acp.store.units import DatabaseClosed, NewEvent, Statement, Unit

__all__ = [
    "ABANDONED",
    "Database",
    "DatabaseClosed",
    "NewEvent",
    "Statement",
    "Unit",
]

log: Final = structlog.get_logger()
T = TypeVar("T")

ABANDONED: list[Database] = []
"""Databases whose files are gone: left open until the process ends, which must be by `os._exit`."""

FIRST_PROBE = 0.05
"""Seconds until an unwritable database is probed first; doubled after each probe."""
LONGEST_PAUSE = 2.0
"""Seconds between two probes, at most."""
RELAPSE = 10.0
"""Seconds after a recovery in which a new failure continues the old probing interval, unless it is damage that
one unit has met: others do not wait for that."""


class Database:
    """The open database. Its coroutines may be called by any number of tasks of one event loop."""

    def __init__(self, path: Path, opened: OpenedDatabase, data: Path) -> None:
        """Use `open`."""
        self.path = path
        self.blobs = BlobFiles(data)
        self.clock = opened.clock
        self.journal_mode = opened.mode
        self.condition = StoreCondition()
        self.limited = opened.copy is not None  # read-only until it is reopened
        self.reopen_wanted = asyncio.Event()
        """Set when the database must be reopened: it may differ from what this process knows."""
        self._copy = opened.copy
        self._writer = opened.writer
        self._readers = ReaderPool(opened.readers)
        self._file = opened.file
        self._checkpoints = opened.checkpoints
        batches = BatchWriter(self._file, relaxed=opened.mode.relaxed)
        self.inherited = batches.inherited
        self._commits = GroupCommit(opened.writer, batches, self.note_write)
        self._further: list[Connection] = []
        self._closing: asyncio.Task[None] | None = None
        self._uncertain = False
        self._rescued = False
        self._was_inaccessible = not opened.accessible
        self.watching = asyncio.create_task(self._watch(), name="watch-store")
        if opened.trouble is not None:
            self.condition.failed(*opened.trouble)

    @classmethod
    async def open(cls, path: Path, spare: Sequence[Path] = ()) -> Database:
        """Open the file, create it (0600) if it is missing, and migrate it.

        A file that cannot be written now (full or read-only disk, another program's lock) is opened
        all the same, in the condition that says why. If SQLite cannot even open it, a copy is read,
        in the first directory of `spare` with room: the database is `limited` until
        `reopen_wanted`.

        Raises DatabaseBusy if another program denies even reading, and DatabaseUnusable, with the
        file untouched, if it is damaged, newer than this program, unreadable, or unwritable with no
        room for a copy. The caller holds the data directory's lock.
        """
        # SQLite keeps its other files beside the file that a link leads to.
        real = await asyncio.to_thread(path.resolve)
        return cls(real, await open_files(real, spare, path), path.parent)

    async def commit(self, unit: Unit, *, patient: bool = False) -> list[int]:
        """Commit the unit; returns the seqs of its events, in their order.

        Units are committed in the order of the calls. One whose caller is cancelled may be
        committed nevertheless.

        While the database cannot be written, a `patient` unit waits; any other is refused at once
        with StoreUnavailable; StoreUncertain if it may have been kept.

        Raises Conflict if a statement changed another number of rows than it demands or if an
        event's session does not exist, StaleEpoch if the unit's worker is not the newest,
        RowRefused if a row breaks a rule of its table, DamageMet if the unit needs what is damaged,
        sqlite3.Error if SQLite refused the unit itself, and DatabaseClosed; then nothing of the unit
        was kept, and no other unit is affected.
        """
        damaged = False
        while True:
            self._require_open()
            if patient:
                await self.condition.writable()
                self._require_open()
            else:
                self.condition.require()
            try:
                return await self._commits.commit(unit)
            except Exception as error:
                found = trouble(error)
                if found is None and isinstance(error, sqlite3.IntegrityError):
                    raise RowRefused(str(error)) from error
                if found is None:
                    raise
                self._uncertain = self._uncertain or isinstance(
                    error, GoneAfterCommit | UnseenAfterCommit
                )
                self.note_access(history_copy.is_accessible(self.path))
                if damaged and is_damage(error):
                    raise DamageMet(found[1]) from error
                damaged = is_damage(error)
                self.condition.failed(*found)
                if not patient:
                    raise self.condition.refusal(error) from error

    async def read(
        self, sql: str, parameters: tuple[Any, ...] = (), size: int | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a query, which sees every unit whose `commit` has returned; never waits for
        the writer.

        `size` limits the characters of the rows' last columns together; one row at least is
        returned.

        Raises sqlite3.Error if the query is wrong or tries to write, StoreUnavailable if another
        program locks readers out, which it can without a write-ahead log, or if the disk fails, and
        DatabaseClosed.
        """
        self._require_open()
        return await self._reading(self._readers.read(sql, parameters, size))

    async def read_with(self, work: Callable[[Rows], T]) -> T:
        """What `work` makes of several queries: one trip to a reader's thread, in which it runs.

        Each query sees what is committed when it begins. Raises as `read`, and what `work` raises.
        """
        self._require_open()
        return await self._reading(
            self._readers.read_with(lambda connection: work(rows_of(connection)))
        )

    async def _reading(self, reading: Coroutine[Any, Any, T]) -> T:
        try:
            return await reading
        except sqlite3.DatabaseError as error:
            if (found := trouble(error)) is None or result_code(error) == sqlite3.SQLITE_READONLY:
                raise
            if found[0] != DatabaseState.LOCKED and not is_damage(error):
                found = trouble(await asyncio.to_thread(self._file.cause, error)) or found
                self.condition.failed(*found)
            raise unavailable(*found) from error

    async def connect(self) -> Connection:
        """A further connection to the file, which is closed with the database. Whoever writes with
        it checks `file` within the transaction and after it, then calls `note_write`.

        Raises StoreUnavailable while the database cannot be written, sqlite3.Error, and
        DatabaseClosed.
        """
        self.require_writable()
        made = await Connection.open(self.path)
        if self._closing is not None:
            await made.close()
        self._require_open()
        self._further.append(made)
        try:
            await made.run(self.journal_mode.configure)
        except BaseException:
            await self.disconnect(made)
            raise
        return made

    async def disconnect(self, further: Connection) -> None:
        """Close a connection that `connect` has made."""
        if further in self._further:
            self._further.remove(further)
        await further.close()

    def require_writable(self) -> None:
        """Raises StoreUnavailable while the database cannot be written, and DatabaseClosed."""
        self._require_open()
        if self.limited:
            raise self.condition.refusal()
        self.condition.require()

    @property
    def file(self) -> OpenFile:
        """The open file, whose checks may be called in any thread."""
        return self._file

    def note_write(self, units: Sequence[Unit] = ()) -> None:
        """Note a transaction, of these units or of a further connection: the write-ahead log is to be
        emptied.
        """
        if self._file.log_is_new:  # another program has changed the journal mode
            self.reopen_wanted.set()
        if self._checkpoints is not None:
            self._checkpoints.written(units)

    async def probe(self) -> None:
        """Wait for the writer to answer, an error included; for the watchdog: never returns if it
        hangs.
        """
        if self._closing is None and self._copy is None:
            try:
                await self._commits.answered()
            except Exception as error:
                if (found := trouble(error)) is None:
                    raise
                self.condition.failed(*found)

    async def close(self) -> None:
        """Commit what is queued, refuse what comes later, close the file; all calls wait for that."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close-store")
            self.condition.give_up()
        await asyncio.shield(self._closing)

    def note_access(self, accessible: bool) -> None:
        """Note whether the system grants writing; a file that SQLite opens while it does not stays
        read-only.
        """
        self._was_inaccessible = self._was_inaccessible or not accessible

    async def _watch(self) -> None:
        """Probe an unwritable database, with exponential back-off; ends if it must be opened anew."""
        loop = asyncio.get_running_loop()
        pause, recovered = FIRST_PROBE, loop.time()
        while True:
            await self.condition.in_trouble()
            if loop.time() - recovered > RELAPSE or self.condition.is_suspect:
                pause = FIRST_PROBE
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            error = await self._probe_write()
            if isinstance(error, LogMissing) and await self._rescue_log():
                self.reopen_wanted.set()
                return
            if error is not None:
                found = trouble(error) or (DatabaseState.BLOCKED, str(error))
                self.condition.failed(*found, probed=True)
            elif self._uncertain or self.limited:
                self.reopen_wanted.set()
                return
            else:
                recovered = loop.time()
                self.condition.recovered()

    async def _probe_write(self) -> Exception | None:
        if self._copy is None:
            error = await self._commits.probe_write()
            if error is None or result_code(error) != sqlite3.SQLITE_READONLY:
                return error
            # A file that SQLite opened on a read-only disk stays read-only in this process.
            accessible = history_copy.is_accessible(self.path)
            if accessible and self._was_inaccessible:
                self._uncertain = True
                return None
            self._was_inaccessible = not accessible
            return error
        return await asyncio.to_thread(history_copy.probe, self.path)

    async def _rescue_log(self) -> bool:
        """Checkpoint a WAL whose file was removed; the database can be reopened then."""
        try:
            busy = await self._writer.run(
                lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            )
        except sqlite3.Error as error:
            log.warning(
                "The removed write-ahead log could not be checkpointed",
                action="log_not_rescued",
                error=str(error),
            )
            return False
        self._rescued = not busy
        return self._rescued

    async def _close(self) -> None:
        self.watching.cancel()
        await asyncio.wait([self.watching])
        await self._commits.drain()
        if self._checkpoints is not None:
            await self._checkpoints.stop()
        try:
            self._file.check()
        except (FileGone, OSError) as error:
            if isinstance(error, LogMissing) and self._rescued:
                await self._close_files()
                return
            log.warning(
                "The database's files are left as they are",
                action="database_abandoned",
                reason=str(error),
            )
            # Closing would delete the WAL at the path, which is another file's.
            ABANDONED.append(self)
            return
        await self._close_files()

    async def _close_files(self) -> None:
        """Close its files as they are at the path."""
        while self._further:
            await self.disconnect(self._further[-1])
        await self._readers.close()
        if self._checkpoints is not None:
            await self._checkpoints.close()
        try:
            await self._writer.run(self.journal_mode.tidy)
        finally:
            await self._writer.close()
            self._file.close()
            if self._checkpoints is not None:
                self._checkpoints.file.close()
            if self.limited and self._copy is not None:
                await asyncio.to_thread(history_copy.remove, self._copy)

    def _require_open(self) -> None:
        if self._closing is not None:
            raise DatabaseClosed(f"the database {self.path} was closed")
