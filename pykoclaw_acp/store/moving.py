"""Carrying out the merge of logs, in pieces: the merged log is written under a key that no session
has, until one short transaction gives it to the owner.

Before that transaction nothing of it shows, after it the merge has happened; what is left then,
numbers of ended turns and records of old places, is done in pieces before anybody is served. A
start after a crash continues at the last piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pykoclaw_acp import crash_points
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.logs import DROP, NEXT_KEY
from pykoclaw_acp.store.merging import MergePlan, MovedTurn
from pykoclaw_acp.store.pieces import PIECE_SIZE, Pieces
from pykoclaw_acp.store.sql import LOG_KEY

_BEGIN: Final = f"INSERT INTO acp_log_leftovers (log_key, plan) SELECT {NEXT_KEY}, ?"
_FIND: Final = "SELECT log_key FROM acp_log_leftovers WHERE plan = ?"
_RUN: Final = (
    "INSERT INTO acp_merging_runs (log_key, last_seq, source_key, acp_session_id, old_first, old_last, moved_by,"  # noqa: S608
    f" turn_moved_by) VALUES (?, ?, {LOG_KEY}, ?, ?, ?, ?, ?) ON CONFLICT (log_key, last_seq) DO NOTHING"
)
_TURN: Final = (
    "INSERT INTO acp_merging_turns (log_key, turn_id, acp_session_id, position, moved_by) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (log_key, turn_id) DO NOTHING"
)
_REACHED: Final = "SELECT MAX(seq) FROM acp_log WHERE log_key = ?"
# Parameters: the key, and the seqs of the merged log between which a piece lies. Ranges of the old
# log are given as such, so that its key is searched.
_SOURCE: Final = (
    "FROM acp_merging_runs r CROSS JOIN acp_log e ON e.log_key = r.source_key"
    " AND e.seq > CASE WHEN r.old_first > ? - r.moved_by THEN r.old_first - 1 ELSE ? - r.moved_by END"
    " AND e.seq <= CASE WHEN r.old_last < ? - r.moved_by THEN r.old_last ELSE ? - r.moved_by END"
    " WHERE r.log_key = ? AND r.last_seq > ? AND r.old_first + r.moved_by <= ?"
)
_NEXT: Final = (
    f"SELECT e.seq + r.moved_by, LENGTH(e.payload) {_SOURCE} ORDER BY r.last_seq, e.seq LIMIT ?"
)
# Which frames of a worker are in the log counts for the owner's workers alone. An event that two
# logs have made from one message is in the merged one twice, and known by it once.
_COPY: Final = (
    "INSERT INTO acp_log (log_key, seq, first_seq, turn, kind, epoch, frame, source_uuid, cuts, payload)"  # noqa: S608
    " SELECT r.log_key, e.seq + r.moved_by, e.first_seq + r.moved_by, e.turn + r.turn_moved_by, e.kind,"
    " CASE WHEN r.acp_session_id = ? THEN e.epoch END, CASE WHEN r.acp_session_id = ? THEN e.frame END,"
    " CASE WHEN e.source_uuid IS NULL OR NOT EXISTS (SELECT 1 FROM acp_log o"
    " WHERE o.source_uuid = e.source_uuid AND o.log_key IN (SELECT s.log_key FROM acp_sessions w"
    " JOIN acp_sessions s ON s.conversation_name = w.conversation_name AND s.deleted_at IS NULL"
    " WHERE w.acp_session_id = ? AND s.log_key < r.source_key)) THEN e.source_uuid END,"
    f" e.cuts, e.payload {_SOURCE}"
)
_SWITCH: Final = "UPDATE acp_sessions SET log_key = ?, last_seq = ? WHERE acp_session_id = ?"


def _place(column: str) -> str:
    """SQL: the new seq of a cursor's column; unchanged if it lies before all merged parts."""
    found = (
        "FROM acp_merging_runs m"
        " WHERE m.log_key = ? AND m.acp_session_id = acp_cursors.acp_session_id"
        f" AND m.old_first <= acp_cursors.{column}"
    )
    return (
        f"COALESCE((SELECT CASE WHEN {column} < m.old_last THEN {column} ELSE m.old_last END + m.moved_by"
        f" {found} ORDER BY m.old_first DESC LIMIT 1), {column})"
    )


_MOVE_CURSORS: Final = (
    f"UPDATE acp_cursors SET seq = {_place('seq')},"  # noqa: S608
    f" least = {_place('least')} WHERE acp_session_id = ?"
)
_MOVE_TURN: Final = (
    "UPDATE acp_turns SET acp_session_id = ?, position = ?, first_seq = first_seq + ?, last_seq = last_seq + ?"
    " WHERE turn_id = ?"
)
# Two prompts under one key were two: the first one's session keeps it.
_FREE_KEYS: Final = (
    "UPDATE acp_turns SET idempotency_key = NULL WHERE acp_session_id = ? AND idempotency_key IN"
    " (SELECT idempotency_key FROM acp_turns WHERE acp_session_id = ?)"
)
# Of merges that have happened: the key is a session's.
_RUNS_LEFT: Final = (
    "SELECT r.log_key, r.last_seq FROM acp_sessions s JOIN acp_merging_runs r ON r.log_key = s.log_key"
    " ORDER BY r.log_key, r.last_seq LIMIT ?"
)
_RECORD: Final = (
    (
        "INSERT INTO acp_merged_logs (acp_session_id, first_seq, last_seq, moved_by)"
        " SELECT acp_session_id, old_first, old_last, moved_by FROM acp_merging_runs"
        " WHERE log_key = ? AND last_seq <= ?"
    ),
    "DELETE FROM acp_merging_runs WHERE log_key = ? AND last_seq <= ?",
)
_TURNS_LEFT: Final = (
    "SELECT m.log_key, m.turn_id FROM acp_sessions s JOIN acp_merging_turns m ON m.log_key = s.log_key"
    " ORDER BY m.log_key, m.turn_id LIMIT ?"
)
_MOVE_TURNS: Final = (
    (
        "UPDATE acp_turns SET acp_session_id = m.acp_session_id, position = m.position,"
        " first_seq = acp_turns.first_seq + m.moved_by, last_seq = acp_turns.last_seq + m.moved_by"
        " FROM acp_merging_turns m WHERE m.turn_id = acp_turns.turn_id AND m.log_key = ? AND m.turn_id <= ?"
    ),
    "DELETE FROM acp_merging_turns WHERE log_key = ? AND turn_id <= ?",
)
# Settled permission requests of aliases; pending ones move with the log.
# CROSS JOIN fixes the order: aliases, which are few, first.
_QUESTIONS_LEFT: Final = (
    "SELECT p.acp_session_id, p.permission_id FROM acp_sessions a"
    " CROSS JOIN acp_permissions p ON p.acp_session_id = a.acp_session_id WHERE a.alias_of IS NOT NULL"
    " ORDER BY p.acp_session_id, p.permission_id LIMIT ?"
)
_MOVE_QUESTIONS: Final = (
    (
        "UPDATE acp_permissions SET acp_session_id ="
        " (SELECT a.alias_of FROM acp_sessions a WHERE a.acp_session_id = acp_permissions.acp_session_id)"
        " WHERE acp_session_id = ? AND permission_id <= ?"
    ),
)
_AFTERWARDS: Final = (
    (_RUNS_LEFT, _RECORD),
    (_TURNS_LEFT, _MOVE_TURNS),
    (_QUESTIONS_LEFT, _MOVE_QUESTIONS),
)


async def write(database: Database, plan: MergePlan) -> int:
    """Write the merged log; returns its key. Goes on where an earlier call for this plan stopped."""
    pieces = Pieces()
    name = plan.sha256
    found = await database.read(_FIND, (name,))
    if not found:
        await database.commit(Unit(statements=(Statement(_BEGIN, (name,)),)), patient=True)
        found = await database.read(_FIND, (name,))
    key = int(found[0][0])
    await _note(database, pieces, [*_runs(key, plan), *_turns(key, plan)])
    reached = (await database.read(_REACHED, (key,)))[0][0] or 0
    while reached < plan.last:
        upto = await _end_of_piece(database, key, reached, plan.last, pieces.rows)
        if upto is None:
            break
        owner = (plan.owner,) * 3
        piece = Statement(_COPY, (*owner, *_between(key, reached, upto)))
        await pieces.commit(database, Unit(statements=(piece,)), patient=True)
        reached = upto
        crash_points.reached("merge_piece_written")
    return key


def switch(key: int, plan: MergePlan, others: Sequence[str]) -> Iterator[Statement]:
    """Give the merged log to the owner, with all that somebody who is served asks for first.

    The other logs become leftovers. For a unit that renumbers.
    """
    sessions = (plan.owner, *others)
    for session_id in sessions:
        yield Statement(_MOVE_CURSORS, (key, key, session_id))
    for session_id in sessions:
        yield from (Statement(sql, (session_id,)) for sql in DROP)
    yield Statement("DELETE FROM acp_log_leftovers WHERE log_key = ?", (key,), rows=1)
    yield Statement(_SWITCH, (key, plan.last, plan.owner), rows=1)
    yield from move_turns(plan, others, (turn for turn in plan.turns if turn.unfinished))


def move_turns(
    plan: MergePlan, others: Sequence[str], turns: Iterable[MovedTurn]
) -> Iterator[Statement]:
    """Give these turns to the owner, and free the keys that several sessions have used."""
    sessions = (plan.owner, *others)
    for at, other in enumerate(sessions):
        yield from (Statement(_FREE_KEYS, (other, before)) for before in sessions[:at])
    for turn in turns:
        values = (plan.owner, turn.position, turn.by, turn.by, turn.turn_id)
        yield Statement(_MOVE_TURN, values, rows=1)


async def finish(database: Database) -> None:
    """Do what is left of merges that have happened; nobody is served before."""
    pieces = Pieces()
    for left, changes in _AFTERWARDS:
        while rows := await database.read(left, (pieces.rows,)):
            upto = max(row for row in rows if row[0] == rows[0][0])
            unit = Unit(statements=tuple(Statement(sql, upto) for sql in changes))
            await pieces.commit(database, unit, patient=True)
            crash_points.reached("merge_piece_finished")


def _runs(key: int, plan: MergePlan) -> Iterator[Statement]:
    for run in plan.runs:
        old = (run.session_id, run.session_id, run.first, run.last)
        yield Statement(_RUN, (key, run.last + run.by, *old, run.by, run.turn_by))


def _turns(key: int, plan: MergePlan) -> Iterator[Statement]:
    for turn in plan.turns:
        if not turn.unfinished:
            yield Statement(_TURN, (key, turn.turn_id, plan.owner, turn.position, turn.by))


async def _note(database: Database, pieces: Pieces, statements: Sequence[Statement]) -> None:
    at = 0
    while at < len(statements):
        piece = tuple(statements[at : at + pieces.rows])
        await pieces.commit(database, Unit(statements=piece), patient=True)
        at += len(piece)


async def _end_of_piece(
    database: Database, key: int, reached: int, last: int, rows: int
) -> int | None:
    """The seq up to which the next piece goes; None if there is no row left."""
    found = await database.read(_NEXT, (*_between(key, reached, last), rows))
    size, upto = 0, None
    for seq, length in found:
        if upto is not None and size + length > PIECE_SIZE:
            break
        upto, size = seq, size + length
    return upto


def _between(key: int, after: int, upto: int) -> tuple[int, ...]:
    return after, after, upto, upto, key, after, upto
