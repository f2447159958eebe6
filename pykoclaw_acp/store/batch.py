"""The synchronous half of group commit: a batch of units becomes one transaction. Runs in the writer's thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pykoclaw_acp.store.sqlite import result_code, sqlite3
from pykoclaw_acp.store.units import Conflict, NewEvent, Statement, Unit

_INSERT_EVENT = (
    "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, source_uuid, created_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_LAST_SEQ = "SELECT last_seq FROM acp_sessions WHERE acp_session_id = ?"
_UPDATE_LAST_SEQ = "UPDATE acp_sessions SET last_seq = ?, updated_at = ? WHERE acp_session_id = ?"


class BatchWriter:
    """Writes batches, and numbers the events of each session from 1 without a gap."""

    def __init__(self, *, relaxed: bool) -> None:
        """`relaxed`: the connection is at `synchronous=NORMAL`, so that a durable unit has to raise it."""
        self._relaxed = relaxed
        self._full = False
        self._last_seq: dict[str, int] = {}

    def write(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> list[list[int] | Exception]:
        """For each unit the `seq`s of its events, or why it was not committed; never raises an Exception."""
        try:
            return list(self._transact(connection, units))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a unit, its caller is told
            # Nobody is to blame for a lock that another process holds: trying each unit would wait for it each time.
            if len(units) == 1 or result_code(error) == sqlite3.SQLITE_BUSY:
                return [error] * len(units)
        return [outcome for unit in units for outcome in self.write(connection, [unit])]

    def _transact(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> list[list[int]]:
        self._synchronize(connection, full=any(unit.durable for unit in units))
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = _Transaction(connection, self._last_seq)
            seqs = [transaction.add(unit) for unit in units]
            transaction.finish()
            connection.execute("COMMIT")
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
