"""What Claude remembers at a place of a session's log: in which Claude session, and up to which entry
of its transcript.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.model.branches import Branch, Memory
from pykoclaw_acp.model.contexts import entry_uuid
from pykoclaw_acp.model.events import ToolEnded
from pykoclaw_acp.model.imports import chain
from pykoclaw_acp.model.synthetic_calls import COMPACTION
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.readers import Rows
from pykoclaw_acp.store.sql import DONE, LOG_KEY, UNFINISHED, kind

NOT_KNOWN: Final = (
    "It is not known where in Claude's memory this place is, because an earlier version of"
    " pykoclaw-acp ran that turn, or its worker died. Nothing was changed. Choose a later message."
)
COMPACTED: Final = (
    "The conversation was compacted after this place: what Claude remembered there is gone. Nothing was"
    " changed. Choose a message after the compaction."
)
_TURNS: Final = (
    "SELECT turn_id, claude_session_id, last_uuid, COALESCE(first_seq, 0), last_seq FROM acp_turns"  # noqa: S608
    f" WHERE acp_session_id = ? AND rewound_at IS NULL AND lost_at IS NULL AND state NOT IN {UNFINISHED}"
    f" AND taken_by IS NULL AND (last_uuid IS NOT NULL OR state = {DONE}) AND COALESCE(first_seq, 0) <= ?"
    " ORDER BY position DESC, created_at DESC LIMIT ? OFFSET ?"
)
_FEW: Final = 100
# A prompt's first event has its uuid.
IMPORTED: Final = (
    f"FROM acp_transcript_turns x JOIN acp_log l ON l.log_key = {LOG_KEY}"
    " AND l.source_uuid = x.prompt_uuid || ':0'"
    " WHERE x.acp_session_id = ? AND x.own = 0 AND l.seq <= ? ORDER BY l.seq DESC"
)
"""Turns of other programs that began up to a place, the newest first: `x`, and their places `l`."""
_IMPORTED_TURNS: Final = (
    "SELECT x.prompt_uuid, x.last_uuid, l.seq, x.rewound_at IS NOT NULL, x.lost_at IS NOT NULL"
    f" {IMPORTED}"
)
_SOURCES: Final = f"SELECT source_uuid, seq FROM acp_log WHERE log_key = {LOG_KEY}"  # noqa: S608
_ENTRY: Final = (
    f"{_SOURCES} AND source_uuid >= ? || ':' AND source_uuid < ? || ';' AND seq <= ?"
    " ORDER BY seq DESC LIMIT 1"
)
# What is said of damage and of open calls has a source, too, which is no entry of the transcript.
_NEWEST_ENTRY: Final = (
    f"{_SOURCES} AND source_uuid GLOB '????????-????-????-????-????????????:*'"
    " AND seq >= ? AND seq < ? ORDER BY seq DESC LIMIT 1"
)
_COMPACTED: Final = (
    "SELECT 1 FROM acp_log l LEFT JOIN acp_turns t ON t.acp_session_id = ? AND t.position = l.turn"  # noqa: S608
    f" WHERE l.log_key = {LOG_KEY} AND l.seq >= ? AND l.kind = {kind(ToolEnded)}"
    f""" AND l.payload LIKE '%"{COMPACTION}%' AND l.payload LIKE '%"completed"%'"""
    " AND COALESCE(t.claude_session_id, ?) = ? LIMIT 1"
)
_LOST: Final = (
    "SELECT 1 FROM acp_turns WHERE acp_session_id = ? AND first_seq >= ? AND first_seq <= ?"
    " AND lost_at IS NOT NULL AND rewound_at IS NULL LIMIT 1"
)
# By notes that were told with a turn, or are pending and tell of nothing after a place.
_TOLD: Final = (
    "SELECT x.prompt_uuid, n.turn_id IS NOT NULL FROM acp_transcript_turns x"  # noqa: S608
    " JOIN acp_notes n ON n.note_id = x.told_by WHERE x.acp_session_id = ?"
    " AND x.told_by IS NOT NULL AND (n.turn_id = ?"
    " OR n.turn_id IS NULL AND NOT EXISTS (SELECT 1 FROM acp_transcript_turns y"
    " LEFT JOIN acp_turns t ON t.turn_id IN (y.prompt_uuid, y.acp_session_id || '/' || y.prompt_uuid)"
    f" LEFT JOIN acp_log l ON l.log_key = {LOG_KEY} AND l.source_uuid = y.prompt_uuid || ':0'"
    " WHERE y.acp_session_id = x.acp_session_id AND y.told_by = x.told_by"
    " AND (t.first_seq > ? OR l.seq > ?)))"
)


class _Others(NamedTuple):
    """Turns of other programs between two places: the newest entry that Claude remembers, with its
    seq, and newer ones, of which Claude remembers nothing, with the seq before each.
    """

    entry: tuple[str, int] | None
    lacks: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen in transcripts: which turn follows which, and from which one each Claude session
    goes on.
    """

    parents: dict[str, str | None]
    heads: dict[str, str]
    branches: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    """What is known of each Claude session: the turns that it goes on from, and some that it has left."""

    def has_left(self, claude: str | None, uuid: str) -> bool:
        """Whether the Claude session goes on from before this turn, without it."""
        head = self.heads.get(claude or "", "")
        if head not in self.branches:
            self.branches[head] = chain(self.parents, head), set()
        kept, left = self.branches[head]
        path, at = set[str](), uuid
        while at in self.parents and at not in kept and at not in left and at not in path:
            path.add(at)
            at = self.parents[at] or ""
        if at in kept or at in left:
            left |= path
        return uuid in left


class _OwnTurn(NamedTuple):
    turn_id: str
    claude_session_id: str | None
    last_uuid: str | None
    first_seq: int
    last_seq: int | None


async def at(
    database: Database,
    record: SessionRecord,
    upto: int,
    *,
    at_end: bool,
    rewinding: str | None = None,
) -> Memory:
    """What Claude remembers at this place. `at_end`: it is the end of the log, so that what Claude is
    still to be told counts. `rewinding`: the turn that begins there and is to be forgotten; what
    was told with it is told again. If Claude has left its branch, turns of other programs that began
    before it and ended after it are kept whole.

    Raises InvalidRequest if that is not known, or the conversation was compacted since.
    """
    return await database.read_with(partial(_memory, record, upto, at_end, rewinding))


def _memory(
    record: SessionRecord, upto: int, at_end: bool, rewinding: str | None, rows: Rows
) -> Memory:
    if at_end and record.branch is not None:
        return Memory(record.branch)
    claude, session = record.claude_session_id, record.session_id
    seen = _seen(rows, session)
    newest, left = _newest(rows, session, seen, upto)
    source = newest and newest.claude_session_id
    entry, ended = newest and newest.last_uuid, newest and newest.last_seq
    after = (ended or 0) + 1
    aside = rewinding is not None and seen.has_left(claude, entry_uuid(rewinding))
    end = record.last_seq if aside else upto
    others = _others(rows, record, seen, after, upto, end=end)
    if others.entry is not None:
        source = claude or (None if record.branch is None else record.branch.source)
        entry, after = others.entry
    if entry is not None and source is not None:
        if rows(_COMPACTED, (session, session, after, source, source)):
            raise InvalidRequest(COMPACTED)
        lacks = [after - 1] if rows(_LOST, (session, after, upto)) else []
        if not at_end:
            untold = {entry_uuid(one.turn_id): one.first_seq - 1 for one in left} | others.lacks
            lacks += _untold(rows, session, untold, upto, rewinding, all_of=bool(lacks))
        return Memory(Branch(source, entry), max(0, min(lacks)) if lacks else None)
    if claude is None or newest is None:
        begin = None if claude is None or not at_end else Branch(claude)
        return Memory(begin, None if at_end else 0)
    if not at_end:
        raise InvalidRequest(NOT_KNOWN)
    return Memory(Branch(claude))


def _newest(
    rows: Rows, session_id: str, seen: _Seen, upto: int
) -> tuple[_OwnTurn | None, list[_OwnTurn]]:
    """The newest turn of ours up to a place that its Claude session remembers, and those after it that
    are on a branch which that has left. One that was not seen is where the one before it is.
    """
    found, left = None, list[_OwnTurn]()
    for turn in _own_turns(rows, session_id, upto):
        uuid = entry_uuid(turn.turn_id)
        if seen.has_left(turn.claude_session_id, uuid):
            found = None
            left.append(turn)
            continue
        found = found or turn
        if uuid in seen.parents:
            break
    return found, left


def _own_turns(rows: Rows, session_id: str, upto: int) -> Iterator[_OwnTurn]:
    """Ours up to a place, the newest first: a few, which mostly are enough, then all others."""
    for limit, offset in ((_FEW, 0), (-1, _FEW)):
        yield from map(_OwnTurn._make, rows(_TURNS, (session_id, upto, limit, offset)))


def _others(
    rows: Rows, record: SessionRecord, seen: _Seen, after: int, upto: int, *, end: int
) -> _Others:
    """Find what Claude remembers, up to the place `end`, of other programs' turns that began between
    these places.
    """
    session = record.session_id
    turns = rows(_IMPORTED_TURNS, (session, session, end))
    held: set[str] | None = None
    before, lacks = end + 1, dict[str, int]()
    for uuid, last, begin, rewound, lost in turns:
        if begin < after:
            break
        if begin <= upto:
            held = _held(rows, record, seen) if held is None else held
            if uuid in held and not rewound and not lost:
                found = rows(_ENTRY, (session, last, last, end))
                found = found or rows(_NEWEST_ENTRY, (session, begin, before))
                if found:
                    source, seq = found[0]
                    return _Others((str(source).partition(":")[0], seq), lacks)
            if not rewound:
                lacks[uuid] = begin - 1
        before = begin
    return _Others(None, lacks)


def _untold(
    rows: Rows,
    session_id: str,
    lacks: dict[str, int],
    upto: int,
    rewinding: str | None,
    *,
    all_of: bool,
) -> list[int]:
    """The places of those turns of which Claude is told by no note that it is yet to get, or gets again
    if the turn `rewinding` is rewound. `all_of`: it gets none again, as a summary takes their place.
    """
    if not lacks or rewinding is None:
        return [*lacks.values()]
    found = rows(_TOLD, (session_id, rewinding, session_id, upto, upto))
    told = {uuid: bool(again) for uuid, again in found}
    left = {uuid: seq for uuid, seq in lacks.items() if told.get(uuid, True)}
    return [*left.values()] if all_of or not left.keys() <= told.keys() else []


def _seen(rows: Rows, session_id: str) -> _Seen:
    turns = rows(
        "SELECT prompt_uuid, parent FROM acp_transcript_turns WHERE acp_session_id = ?",
        (session_id,),
    )
    heads = rows(
        "SELECT claude_session_id, head FROM acp_transcripts"
        " WHERE acp_session_id = ? AND head IS NOT NULL",
        (session_id,),
    )
    return _Seen(dict(turns), dict(heads))


def _held(rows: Rows, record: SessionRecord, seen: _Seen) -> set[str]:
    """The turns that the session's Claude session holds; if its transcript was not read yet, those of
    all of its transcripts; without any, those of the one that it is to branch off from.
    """
    own = seen.heads.get(record.claude_session_id or "")
    last = [own] if own else [*seen.heads.values()] or _branched_at(rows, record)
    return set().union(*(chain(seen.parents, head) for head in last))


def _branched_at(rows: Rows, record: SessionRecord) -> list[str]:
    """The turn that ends where the session is to branch off."""
    if record.branch is None or record.branch.at is None:
        return []
    session, entry = record.session_id, record.branch.at
    own = rows(
        "SELECT turn_id FROM acp_turns WHERE acp_session_id = ? AND last_uuid = ?", (session, entry)
    )
    found = rows(_ENTRY, (session, entry, entry, record.last_seq))
    if own or not found:
        return [entry_uuid(turn_id) for (turn_id,) in own]
    others = rows(_IMPORTED_TURNS, (session, session, found[0][1]))
    return [others[0][0]] if others else []
