"""The writer's cache of logs: the last seq of each, and the unfinished message at its end.

Read from the database when a log is first written to. A transaction changes copies, which are kept
once it commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model import folding
from pykoclaw_acp.model.events import Plan, ToolEnded, ToolProgressed, ToolStarted, Usage, decode
from pykoclaw_acp.model.folding import MessagePiece
from pykoclaw_acp.store.sql import NOT_DELETED, UNFINISHED, kind, kinds
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.undecodable import tolerant
from pykoclaw_acp.store.units import NewEvent

LAST_SEQ: Final = (
    "COALESCE((SELECT MAX(e.seq) FROM acp_log e WHERE e.log_key = s.log_key AND e.seq > s.last_seq),"
    " s.last_seq)"
)
"""Last seq of the session `s`; the column counts for logs without rows: old ones and pruned ones."""

# Turns that ended before there were positions come before all that have one, which left room for
# them: the newest of them get the places below those that are taken.
NUMBER_OLD_TURNS: Final = (
    "UPDATE acp_turns SET position = old.place FROM"
    " (SELECT turn_id, (SELECT COALESCE(MIN(position), COUNT(*) + 1) FROM acp_turns WHERE acp_session_id = ?)"
    " - ROW_NUMBER() OVER (ORDER BY created_at DESC, turn_id DESC) AS place FROM acp_turns"
    " WHERE acp_session_id = ? AND position IS NULL ORDER BY created_at DESC, turn_id DESC LIMIT ?)"
    " AS old WHERE acp_turns.turn_id = old.turn_id"
)
NEXT_KEY: Final = (
    "(SELECT COALESCE(MAX(k.log_key), 0) + 1 FROM (SELECT MAX(log_key) AS log_key FROM acp_sessions"
    " UNION ALL SELECT MAX(log_key) FROM acp_log_leftovers) AS k)"
)
"""A key that no log has, also none that is being written or deleted."""
GIVE_KEY: Final = (
    f"UPDATE acp_sessions SET log_key = {NEXT_KEY} WHERE acp_session_id = ? AND log_key IS NULL"  # noqa: S608  constants
    f" AND {NOT_DELETED}"
)
DROP: Final = (
    (
        "INSERT INTO acp_log_leftovers (log_key) SELECT log_key FROM acp_sessions"
        " WHERE acp_session_id = ? AND log_key IS NOT NULL"
    ),
    "UPDATE acp_sessions SET log_key = NULL WHERE acp_session_id = ?",
)
"""Take the log from a session: its rows are deleted later, in pieces. For units that renumber."""
PIECES: Final = 20_000
"""Pieces of a message that are folded in one transaction, at most: 0.2 s."""
_EVERY: Final = 1 << 31  # no limit
_FIND: Final = (
    f"SELECT s.log_key, {LAST_SEQ} FROM acp_sessions s WHERE s.acp_session_id = ? AND {NOT_DELETED}"  # noqa: S608  constants
)
_TURN: Final = "SELECT position, first_seq FROM acp_turns WHERE turn_id = ?"
_BEGIN: Final = (
    "UPDATE acp_turns SET first_seq = COALESCE((SELECT MIN(seq) FROM acp_events WHERE turn_id = ?), ?)"
    " WHERE turn_id = ? AND first_seq IS NULL"
)
_BEFORE_RUN: Final = (
    "SELECT seq FROM acp_log"  # noqa: S608  constant
    f" WHERE log_key = ? AND kind NOT IN {kinds(*MessagePiece.__args__)} ORDER BY seq DESC LIMIT 1"
)
_END_OF_LOG: Final = (
    "SELECT e.seq, e.first_seq, e.payload, t.turn_id FROM acp_log e"
    " LEFT JOIN acp_turns t ON t.acp_session_id = ? AND t.position = e.turn"
    " WHERE e.log_key = ? AND e.seq > ? AND e.source_uuid IS NULL ORDER BY e.seq DESC"
)
# What turns that go on, or tools of a worker that may live, have told and may replace.
_PASSING: Final = (
    "SELECT e.seq, e.payload, t.turn_id FROM acp_log e"  # noqa: S608  constant
    " LEFT JOIN acp_turns t ON t.acp_session_id = ? AND t.position = e.turn"
    f" WHERE e.log_key = ? AND (e.kind IN {kinds(Usage, Plan, ToolProgressed, ToolEnded)}"
    f""" OR e.kind = {kind(ToolStarted)} AND INSTR(e.payload, '"pending":true'))"""
    " AND e.seq >= (SELECT MIN(first_seq)"
    f" FROM acp_turns WHERE acp_session_id = ? AND (state IN {UNFINISHED}"
    " OR epoch = (SELECT epoch FROM acp_sessions WHERE acp_session_id = ?))) ORDER BY e.seq"
)


class UnfinishedMessage(NamedTuple):
    """The pieces of the unfinished message at a log's end; folded when it ends."""

    message: object
    turn_id: str | None
    begin: int
    weight: int

    def takes(self, event: NewEvent, seq: int) -> bool:
        """Whether the event continues the message and fits into one row with it."""
        same = (
            event.message == self.message
            and event.turn_id == self.turn_id
            and event.source_uuid is None
        )
        fits = self.weight + event.weight <= folding.PART and seq < self.begin + PIECES
        return same and fits


@dataclass(slots=True)
class Log:
    """One log: key, last seq, unfinished message, and the seqs of states that may be replaced."""

    key: int
    last: int
    run: UnfinishedMessage | None = None
    passing: dict[str, int] = field(default_factory=dict)
    # The one that told last: its id, its position
    turn: tuple[str | None, int | None] = (
        None,
        None,
    )

    def copy(self) -> Log:
        """An independent copy."""
        return Log(self.key, self.last, self.run, dict(self.passing), self.turn)

    def follow(self, event: NewEvent, seq: int) -> int | None:
        """Take the next event; returns the seq of the state that it replaces."""
        self.last = seq
        if event.message is None or event.source_uuid is not None:
            self.run = None
        elif self.run is None:
            self.run = UnfinishedMessage(event.message, event.turn_id, seq, event.weight)
        else:
            self.run = self.run._replace(weight=self.run.weight + event.weight)
        if event.state is None or event.source_uuid is not None:
            return None
        replaced = self.passing.pop(event.state, None)
        if event.passing:
            self.passing[event.state] = seq
        return None if event.spares else replaced


class Logs:
    """Logs by session. A transaction works on copies of the `committed` ones."""

    def __init__(self, committed: Logs | None = None) -> None:
        self.found: dict[int, int] = {}
        """By key: the last seq of logs that were read from the database."""
        self._logs: dict[str, Log] = {}
        self._committed = committed

    def keep(self, changed: Logs) -> None:
        """Take over the copies of a committed transaction."""
        self._logs.update(changed._logs)

    def of(self, connection: sqlite3.Connection, session_id: str) -> Log:
        """The session's log. Inside of a transaction; raises Conflict if there is no
        such session, or it was deleted.
        """
        log = self._logs.get(session_id)
        if log is None:
            known = self._committed._logs.get(session_id) if self._committed is not None else None
            log = _find(connection, session_id) if known is None else known.copy()
            if known is None:
                self.found[log.key] = log.last
            self._logs[session_id] = log
        return log

    def turn(self, connection: sqlite3.Connection, event: NewEvent, seq: int) -> int | None:
        """Position of the event's turn; records the first event in the turn's row."""
        log = self.of(connection, event.session_id)
        if log.turn[0] != event.turn_id:
            log.turn = (event.turn_id, _begin_turn(connection, event, seq))
        return log.turn[1]


def of_turn(state: str, turn_id: str | None) -> str:
    """Name of a state of which each turn has its own."""
    return f"{state} {turn_id}"


def _begin_turn(connection: sqlite3.Connection, event: NewEvent, seq: int) -> int | None:
    row = connection.execute(_TURN, (event.turn_id,)).fetchone()
    if row is None:
        return None
    if row[1] is None:
        connection.execute(_BEGIN, (event.turn_id, seq, event.turn_id))
    if row[0] is None:
        connection.execute(NUMBER_OLD_TURNS, (event.session_id, event.session_id, _EVERY))
        row = connection.execute(_TURN, (event.turn_id,)).fetchone()
    return None if row[0] is None else int(row[0])


def _find(connection: sqlite3.Connection, session_id: str) -> Log:
    return tolerant(connection, lambda: _read(connection, session_id))


def _read(connection: sqlite3.Connection, session_id: str) -> Log:
    row = connection.execute(_FIND, (session_id,)).fetchone()
    if row is None:
        raise Conflict(f"an event for the session {session_id}, which does not exist")
    key, last = row
    if key is None:
        connection.execute(GIVE_KEY, (session_id,))
        ((key, last),) = connection.execute(_FIND, (session_id,)).fetchall()
        return Log(int(key), int(last))
    log = Log(int(key), int(last), run=_open_run(connection, session_id, int(key), int(last)))
    for seq, payload, turn_id in connection.execute(
        _PASSING, (session_id, key, session_id, session_id)
    ):
        event = decode(payload)
        state = folding.state(event)
        if state is not None:
            state = of_turn(state, turn_id) if state in folding.OF_TURN else state
            log.passing.pop(state, None)
            if folding.passing(event):
                log.passing[state] = seq
    return log


def _open_run(
    connection: sqlite3.Connection, session_id: str, key: int, last: int
) -> UnfinishedMessage | None:
    """The unfinished message at the log's end, as an earlier daemon may have left it."""
    before = connection.execute(_BEFORE_RUN, (key,)).fetchone()
    run: UnfinishedMessage | None = None
    below = last + 1
    for seq, first, payload, turn_id in connection.execute(
        _END_OF_LOG, (session_id, key, before[0] if before else 0)
    ):
        event = decode(payload)
        if not isinstance(event, MessagePiece) or seq + 1 != below:
            break
        weight = folding.weight(event)
        mine = folding.message(event)
        if run is None:
            run = UnfinishedMessage(mine, turn_id, seq, weight)
        elif (
            run.message == mine
            and run.turn_id == turn_id
            and run.weight + weight <= folding.PART
            and seq > last - PIECES
        ):
            run = run._replace(begin=seq, weight=run.weight + weight)
        else:
            break
        below = first
    return run
