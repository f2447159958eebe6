"""Runs the statements that sessions' tools and plugins send, each within bounds, on connections of
their own: no plugin can hold the daemon's.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

import structlog

from pykoclaw_acp.channel import database as frames
from pykoclaw_acp.channel.database import (
    ANSWER_BYTES,
    DatabaseAnswer,
    DatabaseCall,
    Parameters,
    SqlError,
    SqlResult,
    SqlStatement,
)
from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.store.condition import FileGone, KeptOrNot
from pykoclaw_acp.store.connection import LOCK_WAIT, Connection
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.plugin_guard import Guard, StatementRefused, may_read, word, words
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.value_limit import LONGEST

READ_TIME: Final = 5.0  # s
WRITE_TIME: Final = 0.4  # s that a transaction of a plugin may hold the write lock before COMMIT
MAX_ROWS: Final = 100_000
MAX_SCRIPT: Final = 64 * 1024  # characters
TOO_LONG: Final = (
    f"A value of a plugin may have {LONGEST // 2**20} MiB here, and so may a row. Nothing was changed;"
    " keep what is longer in a file."
)
_OF_BEGIN: Final = frozenset({"deferred", "immediate", "exclusive", "transaction"})
_PER_CELL: Final = 8  # bytes that a cell counts besides its text
_EXCEPTIONS: Final = frozenset(  # that are passed on as they are
    {
        "Warning",
        "InterfaceError",
        "DatabaseError",
        "DataError",
        "OperationalError",
        "IntegrityError",
        "ProgrammingError",
        "NotSupportedError",
        "OverflowError",
        "ValueError",
    }
)

log: Final = structlog.get_logger()


class _Guarded:
    """A connection and its guard."""

    def __init__(self, connection: Connection, guard: Guard) -> None:
        self.connection = connection
        self.guard = guard
        self.broken = False  # the connection is replaced before the next call

    @classmethod
    async def open(cls, database: Database, *, reads_only: bool) -> _Guarded:
        connection = await database.connect()
        try:
            guard = await connection.run(partial(_prepare, reads_only=reads_only))
        except BaseException:
            await database.disconnect(connection)
            raise
        return cls(connection, guard)


class PluginStatements:
    """Takes the calls of all workers: reads on one connection, writes on another, one after the
    other on each. Both are opened when the first call needs them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reader: _Guarded | None = None
        self._writer: _Guarded | None = None
        self._scripts: set[bytes] = set()  # that need not run again
        self._opening = asyncio.Lock()
        self._stopped = False

    async def take(self, call: DatabaseCall) -> DatabaseAnswer:
        """Run a call; whatever goes wrong is the answer, and then nothing of it was kept, except
        for a script's statements before the one that failed.
        """
        try:
            results = await self._run(call)
        except Exception as error:
            found = _describe(error)
            if found is None:
                log.exception("A statement of a plugin failed", action="plugin_statement_failed")
                found = SqlError("OperationalError", f"It could not be run: {error!r}")
            return DatabaseAnswer(epoch=call.epoch, call=call.call, error=found)
        return DatabaseAnswer(epoch=call.epoch, call=call.call, results=results)

    def stop(self) -> None:
        """End what runs: the database is about to be closed."""
        self._stopped = True
        for one in (self._reader, self._writer):
            if one is not None:
                one.guard.stop()

    async def _run(self, call: DatabaseCall) -> list[SqlResult]:
        self._database.require_writable()
        if self._stopped:
            raise StoreClosed("the database is being closed")
        if call.script:
            return await self._run_script(call)
        first = [word(one.sql) for one in call.statements]
        if len(first) == 1 and may_read(first[0]) and not call.statements[0].many:
            reader = await self._connection(reads_only=True)
            if (found := await reader.connection.run(partial(_read, reader, call))) is not None:
                return [found]
        return await self._write(call.statements)

    async def _run_script(self, call: DatabaseCall) -> list[SqlResult]:
        digest = hashlib.sha256(call.script.encode()).digest()
        if not (call.once and digest in self._scripts):
            for batch in split(call.script):
                await self._write([SqlStatement(sql) for sql in batch])
        if call.once:
            self._scripts.add(digest)
        return [SqlResult()]

    async def _write(self, statements: Sequence[SqlStatement]) -> list[SqlResult]:
        for one in statements:
            word(one.sql)
        writer = await self._connection(reads_only=False)
        transaction = partial(_transact, writer, self._database.file, statements)
        try:
            return await writer.connection.run(transaction)
        finally:
            self._database.note_write()

    async def _connection(self, *, reads_only: bool) -> _Guarded:
        async with self._opening:
            found = self._reader if reads_only else self._writer
            if found is not None and found.broken:
                await self._database.disconnect(found.connection)
                found = None
            if found is None:
                found = await _Guarded.open(self._database, reads_only=reads_only)
                if reads_only:
                    self._reader = found
                else:
                    self._writer = found
                if self._stopped:  # meanwhile
                    found.guard.stop()
            return found


def split(script: str) -> Iterator[list[str]]:
    """The transactions of a script: each of its statements, or those between BEGIN and COMMIT.

    Raises StatementRefused for a script that is too long or does not end.
    """
    if len(script) > MAX_SCRIPT:
        raise StatementRefused(f"A plugin's script may have {MAX_SCRIPT} characters.")
    batch: list[str] | None = None
    for sql in _statements(script):
        match words(sql):
            case []:
                continue
            case ["begin", *rest] if batch is None and set(rest) <= _OF_BEGIN:
                batch = []
            case ["commit" | "end", *rest] if set(rest) <= {"transaction"} and batch is not None:
                yield batch
                batch = None
            case _ if batch is not None:
                batch.append(sql)
            case _:
                yield [sql]
    if batch is not None:
        raise StatementRefused("A plugin's script begins a transaction that it does not end.")


def _statements(script: str) -> Iterator[str]:
    begin = at = 0
    while (at := script.find(";", at) + 1) > 0:
        if sqlite3.complete_statement(script[begin:at]):
            yield script[begin:at]
            begin = at
    yield script[begin:]


# --- in the threads of the connections


def _prepare(connection: sqlite3.Connection, *, reads_only: bool) -> Guard:
    """Set up a new connection, and guard it."""
    connection.execute(f"PRAGMA busy_timeout={round(LOCK_WAIT * 1000)}")
    return Guard(connection, reads_only=reads_only)


def _read(one: _Guarded, call: DatabaseCall, connection: sqlite3.Connection) -> SqlResult | None:
    """Run a reading statement; returns None for one that writes."""
    one.guard.start(READ_TIME)
    try:
        return _execute(connection, call.statements[0])
    except sqlite3.Error as error:
        if one.guard.wants_write and not one.guard.refused:
            return None
        raise _explained(error, one.guard, READ_TIME) from error


def _transact(
    one: _Guarded,
    file: OpenFile,
    statements: Sequence[SqlStatement],
    connection: sqlite3.Connection,
) -> list[SqlResult]:
    one.guard.start(WRITE_TIME)  # forgets what was refused before
    try:
        _run_own(one, "BEGIN IMMEDIATE", connection)
        one.guard.start(WRITE_TIME)
        file.check()
        results = []
        for statement in statements:
            one.guard.begin(statement.sql)
            results.append(_execute(connection, statement))
        _run_own(one, "COMMIT", connection)
    except sqlite3.Error as error:
        raise _explained(error, one.guard, WRITE_TIME) from error
    finally:
        if connection.in_transaction:
            _roll_back(one, connection)
    file.check_after_commit()
    return results


def _run_own(one: _Guarded, sql: str, connection: sqlite3.Connection) -> None:
    """Run a statement that is not the plugin's."""
    # SQLite counts the steps of a cached statement over all its runs, so that one in many is asked
    # about; if it was interrupted, it may have had its effect all the same.
    one.guard.rest()
    connection.execute(sql)


def _roll_back(one: _Guarded, connection: sqlite3.Connection) -> None:
    try:
        _run_own(one, "ROLLBACK", connection)
    except sqlite3.Error as error:
        log.error(
            "A plugin's transaction cannot be undone", action="rollback_failed", error=str(error)
        )
        one.broken = True
        connection.close()  # gives the write lock back


def _execute(connection: sqlite3.Connection, statement: SqlStatement) -> SqlResult:
    """Run a statement of the plugin."""
    if statement.many:
        given = map(frames.from_parameters, cast("list[Parameters]", statement.parameters))
        cursor = connection.executemany(statement.sql, given)
        return SqlResult(rowcount=cursor.rowcount, lastrowid=cursor.lastrowid)
    cursor = connection.execute(statement.sql, frames.from_parameters(statement.parameters))
    try:
        columns = None if cursor.description is None else [one[0] for one in cursor.description]
        rows = [] if columns is None else _fetch(cursor)
        return SqlResult(
            rowcount=cursor.rowcount,
            lastrowid=cursor.lastrowid,
            columns=columns,
            rows=frames.to_rows(rows),
        )
    finally:
        cursor.close()  # unread rows would hold the snapshot


def _fetch(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(_PER_CELL + (len(one) if isinstance(one, str | bytes) else 0) for one in row)
        if size > ANSWER_BYTES or len(rows) > MAX_ROWS:
            raise StatementRefused(
                f"The statement returns more than {ANSWER_BYTES // 2**20} MiB or {MAX_ROWS} rows. "
                "Nothing was changed; select fewer rows, with LIMIT for instance."
            )
    return rows


def _explained(error: sqlite3.Error, guard: Guard, seconds: float) -> Exception:
    if guard.refused:
        return StatementRefused(guard.refused)
    if guard.expired:
        return StatementRefused(
            f"A statement of a plugin may take {seconds:g} s here; it was stopped, and nothing was"
            " changed. Do it in smaller steps."
        )
    if isinstance(error, sqlite3.DataError) and "too big" in str(error):
        return StatementRefused(TOO_LONG)
    return error


def _describe(error: Exception) -> SqlError | None:
    """The error for the plugin; None if it is a fault of this program."""
    if isinstance(error, StatementRefused):
        return SqlError("OperationalError", str(error))
    if isinstance(error, StoreUnavailable):
        return SqlError("OperationalError", f"The database cannot be used now. {error.reason}")
    if isinstance(error, KeptOrNot):
        return SqlError("OperationalError", f"It may have been kept, or not: {error}")
    if isinstance(error, StoreClosed):
        return SqlError("OperationalError", "The daemon is ending. Nothing was changed.")
    if isinstance(error, FileGone | OSError):
        return SqlError("OperationalError", str(error))
    kind = type(error).__name__
    return SqlError(kind, str(error)) if kind in _EXCEPTIONS else None
