"""The synchronous half of group commit: a batch of units becomes one transaction. Runs in the writer's thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pykoclaw_acp.store.condition import trouble
from pykoclaw_acp.store.connection import LOCK_WAIT
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import Conflict, NewEvent, Statement, Unit

_INSERT_EVENT = (
    "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, source_uuid, created_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_LAST_SEQ = "SELECT last_seq FROM acp_sessions WHERE acp_session_id = ?"
_UPDATE_LAST_SEQ = "UPDATE acp_sessions SET last_seq = ?, updated_at = ? WHERE acp_session_id = ?"


PROBE_TIMEOUT_MS = 100
"""How long a probe waits for another process's lock."""


class BatchWriter:
    """Writes batches, and numbers the events of each session from 1 without a gap."""

    def __init__(self, file: OpenFile, *, relaxed: bool) -> None:
        """`relaxed`: the connection is at `synchronous=NORMAL`, so that a durable unit has to raise it."""
        self._file = file
        self._relaxed = relaxed
        self._full = False
        self._last_seq: dict[str, int] = {}

    def write(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> list[list[int] | Exception]:
        """For each unit the `seq`s of its events, or why it was not committed; never raises an Exception."""
        try:
            return list(self._transact(connection, units))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a unit, its caller is told
            # No unit is to blame for a lock or a file: trying each would wait each time. A disk may have room for some.
            found = trouble(error)
            if len(units) == 1 or (found is not None and found[0] in ("locked", "gone")):
                return [error] * len(units)
        return [outcome for unit in units for outcome in self.write(connection, [unit])]

    def probe(self, connection: sqlite3.Connection) -> Exception | None:
        """Writes a page that says what it said before; returns what kept it from being written."""
        try:
            self._file.check()
            connection.execute(f"PRAGMA busy_timeout={PROBE_TIMEOUT_MS}")
            write_nothing_new(connection)
            self._file.check()
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be written
            return error
        finally:
            connection.execute(f"PRAGMA busy_timeout={round(LOCK_WAIT * 1000)}")
        return None

    def _transact(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> list[list[int]]:
        self._file.check()
        self._synchronize(connection, full=any(unit.durable for unit in units))
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = _Transaction(connection, self._last_seq)
            seqs = [transaction.add(unit) for unit in units]
            transaction.finish()
            connection.execute("COMMIT")
            self._file.check_after_commit()
        finally:
            # SQLite has rolled back by itself after some errors, a full disk for instance.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._last_seq.update(transaction.last_seq)
        return seqs

    def _synchronize(self, connection: sqlite3.Connection, *, full: bool) -> None:
        """Before a transaction, because nothing may fail after it: then its units would be told that they failed."""
        if self._relaxed and full != self._full:
            connection.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
            self._full = full


def write_nothing_new(connection: sqlite3.Connection) -> None:
    """Commits a page that says what it said before; raises sqlite3.Error if the database cannot be written."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        # SQLite writes no page for an update that changes nothing.
        connection.execute("INSERT INTO acp_migrations (version, name, sha256, applied_at) VALUES (-1, '', '', 0)")
        connection.execute("DELETE FROM acp_migrations WHERE version = -1")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class _Transaction:
    """One transaction: events gather, and are inserted before anything that could look at them."""

    def __init__(self, connection: sqlite3.Connection, committed: dict[str, int]) -> None:
        self._connection = connection
        self._committed = committed
        self._rows: list[tuple[Any, ...]] = []
        self._now = time.time_ns() // 1_000_000
        self.last_seq: dict[str, int] = {}

    def add(self, unit: Unit) -> list[int]:
        if unit.statements:
            self._insert_events()
        for statement in unit.statements:
            self._execute(statement)
        return [self._number(event) for event in unit.events]

    def finish(self) -> None:
        self._insert_events()
        if self.last_seq:
            positions = [(seq, self._now, session_id) for session_id, seq in self.last_seq.items()]
            if self._connection.executemany(_UPDATE_LAST_SEQ, positions).rowcount != len(positions):
                raise Conflict(f"an event for a session that is gone, of {', '.join(self.last_seq)}")

    def _execute(self, statement: Statement) -> None:
        changed = self._connection.execute(statement.sql, statement.parameters).rowcount
        if statement.rows is not None and changed != statement.rows:
            raise Conflict(f"{changed} rows were changed instead of {statement.rows} by: {statement.sql}")

    def _number(self, event: NewEvent) -> int:
        seq = self._last(event.session_id) + 1
        self.last_seq[event.session_id] = seq
        self._rows.append(
            (event.session_id, seq, event.turn_id, event.kind, event.payload, event.source_uuid, self._now)
        )
        return seq

    def _last(self, session_id: str) -> int:
        for known in (self.last_seq, self._committed):
            if session_id in known:
                return known[session_id]
        row = self._connection.execute(_SELECT_LAST_SEQ, (session_id,)).fetchone()
        if row is None:
            raise Conflict(f"an event for the session {session_id}, which does not exist")
        return int(row[0])

    def _insert_events(self) -> None:
        if self._rows:
            self._connection.executemany(_INSERT_EVENT, self._rows)
            self._rows.clear()
