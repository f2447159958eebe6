"""One batch, one transaction: whatever fails in it, no unit is half there and no `seq`
is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.store import migrate
from pykoclaw_acp.store.batch import BatchWriter
from pykoclaw_acp.store.logs import LAST_SEQ
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import NewEvent, Statement, Unit

RENAME = "UPDATE acp_sessions SET title = ? WHERE acp_session_id = ?"


class BreakingConnection(sqlite3.Connection):
    """Raises instead of executing its next statement but `break_after`."""

    break_after: int | None = None

    def _step(self) -> None:
        if self.break_after is not None:
            self.break_after -= 1
            if self.break_after < 0:
                self.break_after = None
                raise sqlite3.OperationalError("disk I/O error")

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._step()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._step()
        return super().executemany(*arguments)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[BreakingConnection]:
    path = tmp_path / "pykoclaw.db"
    connect = sqlite3.connect(path, isolation_level=None, timeout=0.1, factory=BreakingConnection)
    with closing(connect) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        migrate.apply(connection, migrate.load(), path)
        for session in ("s1", "s2"):
            connection.execute(
                "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at) "
                "VALUES (?, 'c', 0, 0)",
                (session,),
            )
        yield connection


@pytest.fixture
def batches(tmp_path: Path) -> BatchWriter:
    return BatchWriter(OpenFile(tmp_path / "none"), relaxed=True)


def event(session: str, source: str | None = None, payload: str = "{}") -> NewEvent:
    return NewEvent(session, "turn", "text", payload, source)


def log(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(
        "SELECT acp_session_id, seq, source_uuid FROM acp_log JOIN acp_sessions USING (log_key) ORDER BY 1, 2"
    ).fetchall()


def sessions(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(
        f"SELECT acp_session_id, title, {LAST_SEQ} FROM acp_sessions s ORDER BY 1"
    ).fetchall()


STEPS = [
    "PRAGMA",
    "BEGIN",
    "UPDATE of the unit",
    "SELECT of the log",
    "UPDATE that gives it a key",
    "SELECT of the key",
    "SELECT of the turn",
    "INSERT of its events",
    "COMMIT",
]


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_fault_at_any_statement_leaves_units_whole(
    connection: BreakingConnection, batches: BatchWriter, step: int
) -> None:
    unit = Unit(
        (Statement(RENAME, ("renamed", "s1"), 1),), (event("s1"), event("s1")), durable=True
    )
    before = log(connection), sessions(connection)
    connection.break_after = step
    (outcome,) = batches.write(connection, [unit])
    assert str(outcome) == "disk I/O error"
    assert not connection.in_transaction
    assert (log(connection), sessions(connection)) == before
    assert batches.write(connection, [unit, unit]) == [[1, 2], [3, 4]]
    assert sessions(connection)[0] == ("s1", "renamed", 4)


def test_nothing_can_fail_after_the_commit(
    connection: BreakingConnection, batches: BatchWriter
) -> None:
    unit = Unit(
        (Statement(RENAME, ("renamed", "s1"), 1),), (event("s1"), event("s1")), durable=True
    )
    connection.break_after = len(STEPS)
    assert batches.write(connection, [unit]) == [[1, 2]]
    assert connection.break_after == 0


def test_only_the_offender_fails(connection: BreakingConnection, batches: BatchWriter) -> None:
    good = Unit((Statement(RENAME, ("good", "s2"), 1),), (event("s1", "a"), event("s2")))
    units = [
        Unit(events=(event("s1"),)),
        Unit(
            (Statement(RENAME, ("bad", "s1")),), (event("s1", "a"), event("s1", "a"))
        ),  # the same source twice
        good,
        Unit((Statement(RENAME, ("bad", "nobody"), 1),), (event("s1"),)),
        Unit(events=(event("s1"), event("nobody"))),
        Unit(events=(event("s1", payload="a lone \ud800"),)),  # cannot be stored as UTF-8
        Unit((Statement("INSERT INTO missing VALUES (1)"),)),
        Unit(events=(event("s1"), event("s2"))),
    ]
    outcomes = batches.write(connection, units)
    assert [type(outcome) for outcome in outcomes] == [
        *(
            list,
            sqlite3.IntegrityError,
            list,
            Conflict,
            Conflict,
            UnicodeEncodeError,
            sqlite3.OperationalError,
            list,
        )
    ]
    assert [outcome for outcome in outcomes if isinstance(outcome, list)] == [[1], [2, 1], [3, 2]]
    assert log(connection) == [
        ("s1", 1, None),
        ("s1", 2, "a"),
        ("s1", 3, None),
        ("s2", 1, None),
        ("s2", 2, None),
    ]
    assert sessions(connection) == [("s1", None, 3), ("s2", "good", 2)]


def test_a_commit_that_is_refused_is_rolled_back(
    connection: BreakingConnection, batches: BatchWriter
) -> None:
    """A deferred constraint fails at COMMIT and leaves the transaction open."""
    connection.execute("PRAGMA foreign_keys=ON")
    turn = (
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at) "
        "VALUES ('t', 'nobody', 'client', '[]', 'queued', 1)"
    )
    late = Unit((Statement("PRAGMA defer_foreign_keys=ON"), Statement(turn)), (event("s1"),))
    outcomes = batches.write(
        connection, [Unit(events=(event("s1"),)), late, Unit(events=(event("s1"),))]
    )
    assert outcomes[0] == [1]
    assert isinstance(outcomes[1], sqlite3.IntegrityError)
    assert outcomes[2] == [2]
    assert not connection.in_transaction


def test_full_disk_fails_only_units_too_large(
    connection: BreakingConnection, batches: BatchWriter
) -> None:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 20}")
    small, large = Unit(events=(event("s1"),)), Unit(events=(event("s1", payload="x" * 1_000_000),))
    outcomes = batches.write(connection, [small, large, small])
    assert outcomes[0] == [1]
    assert isinstance(outcomes[1], sqlite3.OperationalError)
    assert "full" in str(outcomes[1])
    assert outcomes[2] == [2]


def test_unit_sees_writes_of_earlier_units(
    connection: BreakingConnection, batches: BatchWriter
) -> None:
    prune = Unit((Statement("DELETE FROM acp_log"),), (event("s1", "kept"),))
    assert batches.write(connection, [Unit(events=(event("s1"), event("s1"))), prune]) == [
        [1, 2],
        [3],
    ]
    assert log(connection) == [("s1", 3, "kept")]


def test_unit_may_create_session_of_its_events(
    connection: BreakingConnection, batches: BatchWriter
) -> None:
    create = Statement(
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at) VALUES ('s3', 'c', 0, 0)"
    )
    assert batches.write(
        connection, [Unit((create,), (event("s3"),)), Unit(events=(event("s3"),))]
    ) == [[1], [2]]
    assert sessions(connection)[2] == ("s3", None, 2)


def test_numbering_goes_on_where_the_last_process_stopped(
    connection: BreakingConnection, batches: BatchWriter, tmp_path: Path
) -> None:
    batches.write(connection, [Unit(events=(event("s1"),) * 3)])
    assert BatchWriter(OpenFile(tmp_path / "none"), relaxed=True).write(
        connection, [Unit(events=(event("s1"),))]
    ) == [[4]]


def test_events_of_deleted_session_are_refused(
    connection: BreakingConnection, batches: BatchWriter
) -> None:
    batches.write(connection, [Unit(events=(event("s1"),))])
    connection.execute("DELETE FROM acp_sessions WHERE acp_session_id = 's1'")
    (outcome,) = batches.write(connection, [Unit(events=(event("s1"),))])
    assert isinstance(outcome, Conflict)
    assert connection.execute("SELECT count(*) FROM acp_log").fetchone() == (1,)


def test_batch_is_one_transaction_synced_only_if_durable(
    connection: BreakingConnection, batches: BatchWriter
) -> None:
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    plain, durable = Unit(events=(event("s1"),)), Unit(events=(event("s1"),), durable=True)
    batches.write(connection, [plain, plain])
    assert not [sql for sql in ran if sql.startswith("PRAGMA")]
    batches.write(connection, [plain, durable, plain])
    batches.write(connection, [plain])
    frame = [sql for sql in ran if sql.split()[0] in {"PRAGMA", "BEGIN", "COMMIT"}]
    connection.set_trace_callback(None)
    assert frame == [
        *("BEGIN IMMEDIATE", "COMMIT"),
        *("PRAGMA synchronous=FULL", "BEGIN IMMEDIATE", "COMMIT"),
        *("PRAGMA synchronous=NORMAL", "BEGIN IMMEDIATE", "COMMIT"),
    ]


def test_long_held_lock_is_waited_for_once(
    connection: BreakingConnection, batches: BatchWriter, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "pykoclaw.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ran: list[str] = []
        connection.set_trace_callback(ran.append)
        outcomes = batches.write(connection, [Unit(events=(event("s1"),))] * 20)
        connection.set_trace_callback(None)
        assert {str(outcome) for outcome in outcomes} == {"database is locked"}
        assert len(outcomes) == 20
        assert ran.count("BEGIN IMMEDIATE") <= 1
        other.execute("ROLLBACK")
    assert batches.write(connection, [Unit(events=(event("s1"),))]) == [[1]]
