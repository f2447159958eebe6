"""How logs of sessions that become one are merged: in the order in which their turns began; no turn
is split.

The logs are converted: none of their rows is in `acp_events`. The merged log starts above all old
seqs, so that a seq tells by itself whether it is an old one; `acp_merged_logs` maps old seqs to new
ones. Turns get new positions, in the order of the merged log.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pykoclaw_acp.model import turns as turn_states
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.store.database import Database

_SPANS: Final = (
    "SELECT t.turn_id, MIN(e.first_seq), MAX(e.seq) FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key"
    " LEFT JOIN acp_turns t ON t.acp_session_id = s.acp_session_id AND t.position = e.turn"
    " WHERE s.acp_session_id = ? GROUP BY t.turn_id ORDER BY 2"
)
_TURNS: Final = (
    "SELECT turn_id, position, COALESCE(dispatched_at, started_at, created_at), state FROM acp_turns"
    " WHERE acp_session_id = ? ORDER BY COALESCE(position, 0), created_at, turn_id"
)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A session, and the end of its log."""

    session_id: str
    last_seq: int


class Run(NamedTuple):
    """Contiguous events of a log, and by how much their seqs and positions grow."""

    session_id: str
    first: int
    last: int
    by: int
    turn_by: int


class MovedTurn(NamedTuple):
    """A turn, with its position in the merged log, and by how much its seqs grow."""

    turn_id: str
    position: int
    by: int
    unfinished: bool


@dataclass(slots=True)
class MergePlan:
    """A merge: the same for the same logs, so that one that was interrupted is recognized."""

    owner: str
    moves: bool
    """Whether there are logs to merge; otherwise only the turns of others move."""
    last: int
    """Last seq of the merged log; the last that any log had assigned if no row is left."""
    runs: list[Run] = field(default_factory=list)
    turns: list[MovedTurn] = field(default_factory=list)

    @property
    def sha256(self) -> str:
        """The name of the merge."""
        # As it was named before: a merge that an earlier version began goes on.
        name = repr(self).removeprefix("Merge")
        return hashlib.sha256(name.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Turn:
    turn_id: str
    position: int | None
    at: int  # it began; ms since 1970, for want of anything that two logs share
    state: str


@dataclass(slots=True)
class _LogPart:
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


async def plan(database: Database, owner: LogEnd, others: Sequence[LogEnd]) -> MergePlan:
    """How the others' logs and turns become the owner's; its log stays if it is the only one."""
    sessions = [owner, *others]
    logs: list[list[_LogPart]] = []
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
                if turn.turn_id not in told and (turn.state == TurnState.QUEUED or not stays)
            ]
        )
        places.extend(turn.position for turn in turns if turn.position is not None)
    made = MergePlan(owner.session_id, moves=move, last=max(one.last_seq for one in sessions))
    positions = _Positions(max(places, default=0))
    for part in heapq.merge(*logs, key=lambda part: part.at):
        _place(made, part, positions)
    for turn in heapq.merge(*waiting, key=lambda turn: turn.at):
        made.turns.extend(_moved([turn], positions.give([turn])[1], 0))
    return made


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


async def _parts(database: Database, session_id: str, turns: Sequence[_Turn]) -> list[_LogPart]:
    """Split a log into parts, none of which cuts a turn."""
    by_id = {turn.turn_id: turn for turn in turns}
    parts: list[_LogPart] = []
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
            parts.append(_LogPart(session_id, begin, end, turn.at, [turn]))
    first = min((begin for _, begin, _ in spans), default=0)
    if not parts:
        return [_LogPart(session_id, first, last, 0)] if spans else []
    # What is of no turn stays behind the turn that it follows.
    parts[0].first = first
    for part, following in itertools.pairwise(parts):
        part.last = following.first - 1
    parts[-1].last = last
    return parts


def _place(made: MergePlan, part: _LogPart, positions: _Positions) -> None:
    """Add a part at the end of the merged log; it joins the part before if they stay together."""
    by = made.last + 1 - part.first
    turn_by, new_positions = positions.give(part.turns)
    made.last = part.last + by
    made.turns.extend(_moved(part.turns, new_positions, by))
    before = made.runs[-1] if made.runs else None
    if before is not None and before == (
        part.session_id,
        before.first,
        part.first - 1,
        by,
        turn_by,
    ):
        made.runs[-1] = before._replace(last=part.last)
    else:
        made.runs.append(Run(part.session_id, part.first, part.last, by, turn_by))


def _moved(turns: Iterable[_Turn], positions: dict[str, int], by: int) -> Iterator[MovedTurn]:
    for turn in turns:
        unfinished = turn.state in turn_states.UNFINISHED
        yield MovedTurn(turn.turn_id, positions[turn.turn_id], by, unfinished)
