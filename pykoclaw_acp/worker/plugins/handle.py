"""The database handle that plugins get: pykoclaw's, but its statements are run by the daemon.

Each statement is a transaction of its own, bounded in time and size; `transaction()` collects
statements and sends them as one. The methods block: they are called in plugins' threads.
"""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NoReturn, TypeVar

from pykoclaw_acp.channel.database import Parameters, SqlResult, SqlStatement, to_parameters
from pykoclaw_acp.worker.database_calls import DatabaseCalls, DatabaseFailed
from pykoclaw_acp.worker.plugins.rows import ResultCursor, Row, RowFactory

T = TypeVar("T")

_COMMITTED: Final = (
    "A statement outside of `with db.transaction()` is committed at once in a session of"
    " pykoclaw-acp, and cannot be rolled back."
)
_INSIDE: Final = (
    "Within `with db.transaction() as t` use `t`: what the handle itself does is not part of that"
    " transaction. It was not done."
)
_UNKNOWN: Final = (
    "In a session of pykoclaw-acp a transaction is sent at its end: it has no results before that,"
    " and reads nothing."
)


class Handle:
    """The handle of one plugin. `row_factory` is `sqlite3.Row`, or what a plugin sets; None: rows
    are tuples.
    """

    def __init__(self, calls: DatabaseCalls, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is that of `calls`, in another thread."""
        self._calls = calls
        self._loop = loop
        self._lock = threading.RLock()
        # Of a coroutine, what it starts included, or of a thread.
        self._within: ContextVar[UnsentTransaction | None] = ContextVar("within", default=None)
        self._row_factory: RowFactory | None = Row
        self._uncommitted = False  # as the plugin has to think
        self._closed = False

    @property
    def row_factory(self) -> Any:
        """What makes rows: None or `callable(cursor, tuple)`."""
        return self._row_factory

    @row_factory.setter
    def row_factory(self, factory: Any) -> None:
        # `sqlite3.Row` takes only cursors of its own.
        self._row_factory = Row if factory is _sqlite3().Row else factory

    def execute(self, sql: str, parameters: Any = ()) -> ResultCursor:
        """Run a statement."""
        return self._run(statement(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any]) -> ResultCursor:
        """Run a statement once for each of these parameters, in one transaction."""
        return self._run(many(sql, parameters))

    def executescript(self, script: str) -> ResultCursor:
        """Run a script; its statements are committed one by one, except between BEGIN and COMMIT."""
        with self._alone():
            self._wait(self._calls.run_script(script))
            return ResultCursor(SqlResult(), self._row_factory)

    def migrate(self, script: str) -> None:
        """Run a migration, unless it has run under this daemon."""
        with self._alone():
            self._wait(self._calls.run_script(script, once=True))

    def commit(self) -> None:
        """Nothing is left to be committed."""
        self._require_outside()
        self._uncommitted = False

    def rollback(self) -> None:
        """Raises sqlite3.NotSupportedError if something was written since the last commit."""
        self._require_outside()
        if self._uncommitted:
            self._uncommitted = False
            _refuse(_COMMITTED)

    def close(self) -> None:
        """Refuse what comes later."""
        self._closed = True

    @contextmanager
    def transaction(self) -> Iterator[UnsentTransaction]:
        """Collect the statements of the block, which only writes, and run them as one transaction
        at its end. If the block raises, nothing is sent. Within it the handle refuses everything.
        """
        with self._alone():
            batch = UnsentTransaction()
            self._within.set(batch)
            try:
                yield batch
            finally:
                batch.ended = True  # what the block has started still has it
                self._within.set(None)
            if batch.statements:
                batch.sent(self._wait(self._calls.run(*batch.statements)))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The lock, for which the worker's own thread must not wait: Claude is served there."""
        self._require_outside()
        if threading.current_thread() is threading.main_thread():
            raise _sqlite3().ProgrammingError("This handle is not for the worker's own thread.")
        with self._lock:
            yield

    def _require_outside(self) -> None:
        """Raises sqlite3.NotSupportedError within a transaction of the caller, not of another
        coroutine in the same thread.
        """
        within = self._within.get()
        if within is not None and not within.ended:
            _refuse(_INSIDE)

    def _run(self, one: SqlStatement) -> ResultCursor:
        with self._alone():
            (result,) = self._wait(self._calls.run(one))
            self._uncommitted = self._uncommitted or result.columns is None
            return ResultCursor(result, self._row_factory)

    def _wait(self, running: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            running.close()
            raise _sqlite3().ProgrammingError("This handle is closed.")
        try:
            return asyncio.run_coroutine_threadsafe(running, self._loop).result()
        except DatabaseFailed as failed:
            raise _exception(failed.kind)(failed.message) from None


class UnsentTransaction:
    """The statements of a transaction, which has not been sent yet."""

    def __init__(self) -> None:
        self.statements: list[SqlStatement] = []
        self.ended = False
        self._cursors: list[LaterCursor] = []

    def execute(self, sql: str, parameters: Any = ()) -> LaterCursor:
        """Add a statement."""
        return self._add(statement(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any]) -> LaterCursor:
        """Add a statement that runs once for each of these parameters."""
        return self._add(many(sql, parameters))

    def rollback(self) -> None:
        """Drop what was collected."""
        self.statements.clear()
        self._cursors.clear()

    def commit(self) -> NoReturn:
        """The end of the block commits."""
        _refuse("A transaction is committed at the end of its block, and only there.")

    def sent(self, results: list[SqlResult]) -> None:
        """Give the cursors their results."""
        for cursor, result in zip(self._cursors, results, strict=True):
            cursor.result = result

    def _add(self, one: SqlStatement) -> LaterCursor:
        if one.sql.lstrip()[:6].lower() in ("select", "values", "pragma"):
            _refuse(_UNKNOWN)
        self.statements.append(one)
        self._cursors.append(LaterCursor())
        return self._cursors[-1]


class LaterCursor:
    """A cursor whose results come when the transaction has been committed."""

    def __init__(self) -> None:
        self.result: SqlResult | None = None

    @property
    def rowcount(self) -> int:
        """Number of changed rows."""
        return self._sent().rowcount

    @property
    def lastrowid(self) -> int | None:
        """Id of the inserted row."""
        return self._sent().lastrowid

    def fetchone(self) -> Any:
        """The first row that the statement returned."""
        return ResultCursor(self._sent(), Row).fetchone()

    def fetchall(self) -> list[Any]:
        """The rows that the statement returned."""
        return ResultCursor(self._sent(), Row).fetchall()

    def _sent(self) -> SqlResult:
        if self.result is None:
            _refuse(_UNKNOWN)
        return self.result


def statement(sql: str, parameters: Any) -> SqlStatement:
    """A statement with its parameters; raises sqlite3.ProgrammingError for a value that SQLite does
    not take.
    """
    return SqlStatement(sql, to_parameters(_adapted(parameters)))


def many(sql: str, parameters: Iterable[Any]) -> SqlStatement:
    """A statement for each of these parameters."""
    return SqlStatement(sql, [to_parameters(_adapted(one)) for one in parameters], many=True)


def _adapted(parameters: Any) -> Parameters:
    if isinstance(parameters, dict):
        return {name: _value(one) for name, one in parameters.items()}
    return [_value(one) for one in parameters]


def _value(value: Any) -> Any:
    """A value as the module `sqlite3` takes it, its standard adapters included."""
    if value is None or isinstance(value, int | float | bytes):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, str):
        value.encode()  # raises UnicodeEncodeError for lone surrogates, as sqlite3 does
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise _sqlite3().ProgrammingError(f"A value of type {type(value).__name__} is not supported.")


def _exception(kind: str) -> type[Exception]:
    built_in: dict[str, type[Exception]] = {
        "OverflowError": OverflowError,
        "ValueError": ValueError,
    }
    found = built_in.get(kind) or getattr(_sqlite3(), kind, _sqlite3().DatabaseError)
    assert isinstance(found, type)
    return found


def _refuse(why: str) -> NoReturn:
    raise _sqlite3().NotSupportedError(why)


def _sqlite3() -> Any:
    """The module whose exceptions plugins expect. A plugin that opens the file itself gets the same
    SQLite as the daemon, if that is possible.
    """
    import sqlite3

    return sqlite3
