"""What Claude remembers at a place of a session's log: in which Claude session, and up to which entry
of its transcript.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.model.branches import Branch, Memory
from pykoclaw_acp.model.contexts import entry_uuid
from pykoclaw_acp.model.events import ToolEnded
from pykoclaw_acp.model.imports import chain
from pykoclaw_acp.model.synthetic_calls import COMPACTION
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sql import DONE, LOG_KEY, UNFINISHED, kind

NOT_KNOWN: Final = (
    "It is not known where in Claude's memory this place is, because an earlier version of"
    " pykoclaw-acp ran that turn, or its worker died. Nothing was changed. Choose a later message."
)
COMPACTED: Final = (
    "The conversation was compacted after this place: what Claude remembered there is gone. Nothing was"
    " changed. Choose a message after the compaction."
)
_NEWEST_TURN: Final = (
    "SELECT claude_session_id, last_uuid, last_seq FROM acp_turns WHERE acp_session_id = ?"  # noqa: S608
    f" AND rewound_at IS NULL AND lost_at IS NULL AND state NOT IN {UNFINISHED} AND taken_by IS NULL"
    f" AND (last_uuid IS NOT NULL OR state = {DONE}) AND COALESCE(first_seq, 0) <= ?"
    " ORDER BY COALESCE(position, 0) DESC, created_at DESC LIMIT 1"
)
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


class _Others(NamedTuple):
    """Turns of other programs between two places: the newest entry that Claude remembers, with its
    seq, and whether there are newer ones, of which Claude remembers nothing.
    """

    entry: tuple[str, int] | None = None
    lacks: bool = False


async def at(database: Database, record: SessionRecord, upto: int, *, at_end: bool) -> Memory:
    """What Claude remembers at this place. `at_end`: it is the end of the log, so that what Claude is
    still to be told counts.

    Raises InvalidRequest if that is not known, or the conversation was compacted since.
    """
    if at_end and record.branch is not None:
        return Memory(record.branch)
    claude, session = record.claude_session_id, record.session_id
    turns = await database.read(_NEWEST_TURN, (session, upto))
    source, entry, ended = turns[0] if turns else (None, None, 0)
    after = (ended or 0) + 1
    others = await _others(database, record, after, upto)
    if others.entry is not None:
        source = claude or (record.branch and record.branch.source)
        entry, after = others.entry
    if entry is not None and source is not None:
        if await database.read(_COMPACTED, (session, session, after, source, source)):
            raise InvalidRequest(COMPACTED)
        lacks = others.lacks and not at_end
        lacks = lacks or bool(await database.read(_LOST, (session, after, upto)))
        return Memory(Branch(source, entry), after - 1 if lacks else None)
    if claude is None or not turns:
        begin = None if claude is None or not at_end else Branch(claude)
        return Memory(begin, None if at_end else 0)
    if not at_end:
        raise InvalidRequest(NOT_KNOWN)
    return Memory(Branch(claude))


async def _others(database: Database, record: SessionRecord, after: int, upto: int) -> _Others:
    """Find what Claude remembers of other programs' turns that began between these places."""
    session = record.session_id
    rows = await database.read(_IMPORTED_TURNS, (session, session, upto))
    if not rows or rows[0][2] < after:
        return _Others()
    held, end, lacks = await _held(database, record), upto + 1, False
    for uuid, last, begin, rewound, lost in rows:
        if begin < after:
            break
        if uuid in held and not rewound and not lost:
            found = await database.read(_ENTRY, (session, last, last, upto))
            found = found or await database.read(_NEWEST_ENTRY, (session, begin, end))
            if found:
                source, seq = found[0]
                return _Others((str(source).partition(":")[0], seq), lacks)
        lacks = lacks or not rewound
        end = begin
    return _Others(lacks=lacks)


async def _held(database: Database, record: SessionRecord) -> set[str]:
    """The turns that the session's Claude session holds; if its transcript was not read yet, those of
    all of its transcripts; without any, those of the one that it is to branch off from.
    """
    session = record.session_id
    turns = await database.read(
        "SELECT prompt_uuid, parent FROM acp_transcript_turns WHERE acp_session_id = ?", (session,)
    )
    heads = await database.read(
        "SELECT claude_session_id, head FROM acp_transcripts"
        " WHERE acp_session_id = ? AND head IS NOT NULL",
        (session,),
    )
    parents = dict(turns)
    own = [head for claude, head in heads if claude == record.claude_session_id]
    last = own or [head for _, head in heads] or await _branched_at(database, record)
    return set().union(*(chain(parents, head) for head in last))


async def _branched_at(database: Database, record: SessionRecord) -> list[str]:
    """The turn that ends where the session is to branch off."""
    if record.branch is None or record.branch.at is None:
        return []
    session, entry = record.session_id, record.branch.at
    own = await database.read(
        "SELECT turn_id FROM acp_turns WHERE acp_session_id = ? AND last_uuid = ?", (session, entry)
    )
    found = await database.read(_ENTRY, (session, entry, entry, record.last_seq))
    if own or not found:
        return [entry_uuid(turn_id) for (turn_id,) in own]
    others = await database.read(_IMPORTED_TURNS, (session, session, found[0][1]))
    return [others[0][0]] if others else []
