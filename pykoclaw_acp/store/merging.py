"""Merging the logs of sessions that become one, in the order in which their turns began; no turn is
split.

The logs are converted: none of their rows is in `acp_events`. The merged log starts above all old
seqs, so that a seq tells by itself whether it is an old one; `acp_merged_logs` maps old seqs to new
ones. Turns get new positions, in the order of the merged log.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.logs import GIVE_KEY
from pykoclaw_acp.store.sql import LOG_KEY

_SPANS: Final = (
    "SELECT t.turn_id, MIN(e.first_seq), MAX(e.seq) FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key"
    " LEFT JOIN acp_turns t ON t.acp_session_id = s.acp_session_id AND t.position = e.turn"
    " WHERE s.acp_session_id = ? GROUP BY t.turn_id ORDER BY 2"
)
_TURNS: Final = (
    "SELECT turn_id, position, COALESCE(dispatched_at, started_at, created_at), state FROM acp_turns"
    " WHERE acp_session_id = ? ORDER BY COALESCE(position, 0), created_at, turn_id"
)
# Which frames of a worker are in the log counts for the owner's workers alone.
_MOVE: Final = (
    f"UPDATE acp_log SET log_key = {LOG_KEY}, seq = seq + ?, first_seq = first_seq + ?, turn = turn + ?,"  # noqa: S608
    f" epoch = CASE WHEN ? = ? THEN epoch END, frame = CASE WHEN ? = ? THEN frame END WHERE log_key = {LOG_KEY}"
    " AND seq BETWEEN ? AND ?"
)
_MOVE_TURN: Final = (
    "UPDATE acp_turns SET acp_session_id = ?, position = ?, first_seq = first_seq + ?, last_seq = last_seq + ?"
    " WHERE turn_id = ?"
)
# Two prompts under one key were two: the owner's keeps it.
_FREE_KEYS: Final = (
    "UPDATE acp_turns SET idempotency_key = NULL WHERE acp_session_id = ? AND idempotency_key IN"
    " (SELECT idempotency_key FROM acp_turns WHERE acp_session_id = ?)"
)


def _place(column: str) -> str:
    """SQL: the new seq of a cursor's column; unchanged if it lies before all merged parts."""
    found = (
        "FROM acp_merged_logs m"
        f" WHERE m.acp_session_id = acp_cursors.acp_session_id AND m.first_seq <= acp_cursors.{column}"
    )
    return (
        f"COALESCE((SELECT CASE WHEN {column} < m.last_seq THEN {column} ELSE m.last_seq END + m.moved_by {found}"
        f" AND m.first_seq = (SELECT MAX(m.first_seq) {found})), {column})"
    )


_MOVE_CURSORS: Final = (
    f"UPDATE acp_cursors SET seq = {_place('seq')},"  # noqa: S608
    f" least = {_place('least')} WHERE acp_session_id = ?"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """A session, and the end of its log."""

    session_id: str
    last_seq: int


@dataclass(frozen=True, slots=True)
class _Turn:
    turn_id: str
    position: int | None
    at: int  # it began; ms since 1970, for want of anything that two logs share
    state: str


@dataclass(slots=True)
class _Part:
    """A part of a log, `first` to `last`: a turn with what follows it, or overlapping turns."""

    session_id: str
    first: int
    last: int
    at: int
    turns: list[_Turn] = field(default_factory=list)


async def moved(database: Database, session_id: str, seq: int) -> int:
    """The new seq of an event of this id's old log; unchanged if no log was merged."""
    rows = await database.read(
        "SELECT last_seq, moved_by FROM acp_merged_logs WHERE acp_session_id = ? AND first_seq <= ?"
        " ORDER BY first_seq DESC LIMIT 1",
        (session_id, seq),
    )
    return min(seq, rows[0][0]) + rows[0][1] if rows else seq


async def merged(database: Database, owner: Ended, others: Sequence[Ended]) -> list[Statement]:
    """Statements that move the others' logs and turns to the owner; its log stays if it is the only
    one.
    """
    sessions = [owner, *others]
    logs: list[list[_Part]] = []
    waiting: list[list[_Turn]] = []
    move = any(other.last_seq for other in others)
    places: list[int] = []
    for session in sessions:
        turns = [_Turn(*row) for row in await database.read(_TURNS, (session.session_id,))]
        parts = await _parts(database, session.session_id, turns) if move else []
        told = {turn.turn_id for part in parts for turn in part.turns}
        logs.append(parts)
        stays = session is owner and not move
        waiting.append(
            [
                turn
                for turn in turns
                if turn.turn_id not in told and (turn.state == "queued" or not stays)
            ]
        )
        places.extend(turn.position for turn in turns if turn.position is not None)
    statements = [Statement(_FREE_KEYS, (other.session_id, owner.session_id)) for other in others]
    positions = _Positions(max(places, default=0))
    if move:
        statements.append(Statement(GIVE_KEY, (owner.session_id,)))
        statements.extend(_moved(logs, owner, max(one.last_seq for one in sessions), positions))
        statements.extend(Statement(_MOVE_CURSORS, (one.session_id,)) for one in sessions)
    for turn in heapq.merge(*waiting, key=lambda turn: turn.at):
        statements.extend(_turns(owner, positions.give([turn])[1], 0))
    return statements


class _Positions:
    """Assigns new positions after all old ones; turns of one part move together, as its rows name
    them.
    """

    def __init__(self, last: int) -> None:
        self._last = last

    def give(self, turns: Sequence[_Turn]) -> tuple[int, dict[str, int]]:
        """The offset, and the new position of each turn, including turns that had none."""
        known = {turn.turn_id: turn.position for turn in turns if turn.position is not None}
        by = self._last + 1 - min(known.values(), default=0)
        new = {turn_id: position + by for turn_id, position in known.items()}
        self._last = max(new.values(), default=self._last)
        for turn in turns:
            if turn.position is None:
                self._last += 1
                new[turn.turn_id] = self._last
        return by, new


async def _parts(database: Database, session_id: str, turns: Sequence[_Turn]) -> list[_Part]:
    """Split a log into parts, none of which cuts a turn."""
    by_id = {turn.turn_id: turn for turn in turns}
    parts: list[_Part] = []
    last = 0
    spans: list[tuple[Any, ...]] = await database.read(_SPANS, (session_id,))
    for turn_id, begin, end in spans:
        last = max(last, end)
        turn = by_id.get(turn_id)
        if turn is None:
            continue
        if parts and begin <= parts[-1].last:
            parts[-1].last = max(parts[-1].last, end)
            parts[-1].turns.append(turn)
        else:
            parts.append(_Part(session_id, begin, end, turn.at, [turn]))
    first = min((begin for _, begin, _ in spans), default=0)
    if not parts:
        return [_Part(session_id, first, last, 0)] if spans else []
    # What is of no turn stays behind the turn that it follows.
    parts[0].first = first
    for part, following in itertools.pairwise(parts):
        part.last = following.first - 1
    parts[-1].last = last
    return parts


def _moved(
    logs: Iterable[list[_Part]], owner: Ended, last: int, positions: _Positions
) -> Iterator[Statement]:
    runs: list[
        tuple[str, int, int, int]
    ] = []  # session, first and last place, by how much they move
    for part in heapq.merge(*logs, key=lambda part: part.at):
        by = last + 1 - part.first
        turn_by, new_positions = positions.give(part.turns)
        last = part.last + by
        session_id, new = part.session_id, owner.session_id
        places = (session_id, part.first, part.last)
        yield Statement(_MOVE, (new, by, by, turn_by, new, session_id, new, session_id, *places))
        yield from _turns(owner, new_positions, by)
        if runs and runs[-1][0] == session_id and runs[-1][2:] == (part.first - 1, by):
            runs[-1] = (session_id, runs[-1][1], part.last, by)
        else:
            runs.append((session_id, part.first, part.last, by))
    for run in runs:
        yield Statement("INSERT INTO acp_merged_logs VALUES (?, ?, ?, ?)", run, rows=1)
    yield Statement(
        "UPDATE acp_sessions SET last_seq = ? WHERE acp_session_id = ?",
        (last, owner.session_id),
        rows=1,
    )


def _turns(owner: Ended, positions: dict[str, int], by: int) -> Iterator[Statement]:
    for turn_id, position in positions.items():
        yield Statement(_MOVE_TURN, (owner.session_id, position, by, by, turn_id), rows=1)
