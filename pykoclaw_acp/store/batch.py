"""The synchronous half of group commit, in the writer's thread: a batch of units becomes one
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykoclaw_acp.errors import Conflict, StaleEpoch
from pykoclaw_acp.model.folding import OF_TURN
from pykoclaw_acp.store import folding
from pykoclaw_acp.store.condition import KeptOrNot, meets_all
from pykoclaw_acp.store.connection import LOCK_WAIT
from pykoclaw_acp.store.logs import Log, Logs, of_turn
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.sql import NOT_DELETED
from pykoclaw_acp.store.sqlite import result_code, sqlite3
from pykoclaw_acp.store.units import EndOfTurn, NewEvent, Statement, Unit

# The statement itself compares the epoch: only the session's newest worker inserts. A session that
# was deleted takes nothing.
_INSERT_EVENT = (
    "INSERT INTO acp_log (log_key, first_seq, seq, turn, kind, epoch, frame, source_uuid, payload)"  # noqa: S608  constant
    " SELECT log_key, ?, ?, ?, ?, ?, ?, ?, ? FROM acp_sessions WHERE acp_session_id = ? AND epoch = COALESCE(?, epoch)"
    f" AND {NOT_DELETED}"
)
_SELECT_EPOCH = f"SELECT epoch FROM acp_sessions WHERE acp_session_id = ? AND {NOT_DELETED}"  # noqa: S608  constant
_END = "UPDATE acp_turns SET last_seq = ? WHERE turn_id = ? AND first_seq IS NOT NULL"


PROBE_TIMEOUT_MS = 100
"""Lock timeout of a probe."""


class UnsyncedCommit(sqlite3.OperationalError, KeptOrNot):
    """A COMMIT failed, and nothing could be written after it."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(str(error))
        self.sqlite_errorcode = error.sqlite_errorcode


class BatchWriter:
    """Writes batches and assigns seqs: per session from 1, without a gap."""

    def __init__(self, file: OpenFile, *, relaxed: bool) -> None:
        """`relaxed`: the connection runs at `synchronous=NORMAL`; durable units raise
        it to FULL.
        """
        self._file = file
        self._relaxed = relaxed
        self._full = False
        self._logs = Logs()
        self.inherited: dict[int, int] = {}
        """By key: where the logs ended before the first batch that wrote to them."""

    def write(
        self, connection: sqlite3.Connection, units: Sequence[Unit]
    ) -> list[list[int] | Exception]:
        """Commit a batch; returns for each unit the seqs of its events, or the error. Never raises
        an Exception.
        """
        try:
            return list(self._transact(connection, units))
        except Exception as error:  # noqa: BLE001  reported to the unit's caller
            # A lock or a lost file fails all units alike; retrying each would wait each time, or
            # write a committed one twice. A full disk may have room for some of them.
            if len(units) == 1 or isinstance(error, OSError | KeptOrNot) or meets_all(error):
                return [error] * len(units)
        return [outcome for unit in units for outcome in self.write(connection, [unit])]

    def probe(self, connection: sqlite3.Connection) -> Exception | None:
        """Try to write without changing anything; returns the error, if there is one."""
        try:
            self._file.check()
            connection.execute(f"PRAGMA busy_timeout={PROBE_TIMEOUT_MS}")
            write_nothing_new(connection)
            self._file.check()
        except Exception as error:  # noqa: BLE001  any error means that the database cannot be written
            return error
        finally:
            connection.execute(f"PRAGMA busy_timeout={round(LOCK_WAIT * 1000)}")
        return None

    def _transact(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> list[list[int]]:
        """Carry out all of it in one transaction; what each unit's events are numbered."""
        self._file.check()
        self._synchronize(connection, full=any(unit.durable for unit in units))
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = _Transaction(connection, self._logs)
            seqs = [transaction.add(unit) for unit in units]
            transaction.finish()
            _commit(connection)
            self._file.check_after_commit()
        except BaseException:
            self._logs = Logs()  # read anew from the file, whatever was committed
            raise
        finally:
            # SQLite rolls back by itself after some errors, such as a full disk.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._logs.keep(transaction.logs)
        for key, end in transaction.logs.found.items():
            self.inherited.setdefault(key, end)
        if any(unit.renumbers for unit in units):
            self._logs = Logs()
        return seqs

    def _synchronize(self, connection: sqlite3.Connection, *, full: bool) -> None:
        """Set before the transaction: a failure after COMMIT would be reported as if nothing was
        kept.
        """
        if self._relaxed and full != self._full:
            connection.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
            self._full = full


def _commit(connection: sqlite3.Connection) -> None:
    """COMMIT; raises sqlite3.Error if nothing was kept, UnsyncedCommit if that is not known.

    SQLite writes the frames before it has them on the disk: if that fails they would count after a
    crash, unless another transaction has taken their place (https://sqlite.org/walformat.html).
    """
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if result_code(error) != sqlite3.SQLITE_IOERR:
            raise
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            write_nothing_new(connection)
        except sqlite3.Error:
            raise UnsyncedCommit(error) from error
        raise


def write_nothing_new(connection: sqlite3.Connection) -> None:
    """Commit a transaction without effect; raises sqlite3.Error if the database cannot
    be written.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        # An UPDATE that changes nothing would write no page.
        connection.execute(
            "INSERT INTO acp_migrations (version, name, sha256, applied_at) VALUES (-1, '', '', 0)"
        )
        connection.execute("DELETE FROM acp_migrations WHERE version = -1")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class _Transaction:
    """One transaction. Events are buffered, and inserted before any statement that
    could read them.
    """

    def __init__(self, connection: sqlite3.Connection, committed: Logs) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []
        self._replaced: list[tuple[int, int]] = []
        self.logs = Logs(committed)

    def add(self, unit: Unit) -> list[int]:
        """Do what the unit says; the numbers of its events."""
        if unit.statements:
            self._insert_events()
        for statement in unit.statements:
            self._execute(statement)
        if unit.worker is not None and not unit.events:
            self._require_newest(*unit.worker)
        worker = None if unit.worker is None else unit.worker[1]
        seqs: list[int] = []
        for end in unit.ends:
            before = unit.events[len(seqs) : end.events]
            seqs += [self._number(event, worker) for event in before]
            self._end(end)
        return seqs + [self._number(event, worker) for event in unit.events[len(seqs) :]]

    def finish(self) -> None:
        """Write what is left to be written before the COMMIT."""
        self._insert_events()
        for log_key, seq in self._replaced:
            folding.drop(self._connection, log_key, seq)

    def _execute(self, statement: Statement) -> None:
        """Run a statement; raises Conflict if it changed another number of rows than it must."""
        changed = self._connection.execute(statement.sql, statement.parameters).rowcount
        if statement.rows is not None and changed != statement.rows:
            raise Conflict(
                f"{changed} rows were changed instead of {statement.rows} by: {statement.sql}"
            )

    def _number(self, event: NewEvent, worker: int | None) -> int:
        log = self.logs.of(self._connection, event.session_id)
        seq = log.last + 1
        if log.run is not None and not log.run.takes(event, seq):
            self._fold(log)
        turn = self.logs.turn(self._connection, event, seq)
        replaced = log.follow(event, seq)
        if replaced is not None:
            self._replaced.append((log.key, replaced))
        epoch, frame = event.frame or (None, None)
        self._rows.append(
            (
                seq,
                seq,
                turn,
                event.kind,
                epoch,
                frame,
                event.source_uuid,
                event.payload,
                event.session_id,
                worker,
            )
        )
        return seq

    def _end(self, end: EndOfTurn) -> None:
        """Fold the turn's last message and record the turn's last seq."""
        log = self.logs.of(self._connection, end.session_id)
        self._fold(log)
        self._connection.execute(_END, (log.last, end.turn_id))
        for state in OF_TURN:
            log.passing.pop(of_turn(state, end.turn_id), None)

    def _fold(self, log: Log) -> None:
        run, log.run = log.run, None
        if run is not None and run.begin < log.last:
            self._insert_events()
            folding.fold_range(self._connection, log.key, run.begin, log.last)

    def _insert_events(self) -> None:
        if self._rows:
            if self._connection.executemany(_INSERT_EVENT, self._rows).rowcount != len(self._rows):
                for session_id, epoch in {row[-2:] for row in self._rows}:
                    self._require_newest(session_id, epoch)
            self._rows.clear()

    def _require_newest(self, session_id: str, epoch: int | None) -> None:
        newest = self._connection.execute(_SELECT_EPOCH, (session_id,)).fetchone()
        if newest is None:
            raise Conflict(f"an event for the session {session_id}, which is gone")
        if epoch not in (None, newest[0]):
            raise StaleEpoch(
                f"frames of the epoch {epoch} of the session {session_id}, which is at {newest[0]}"
            )
