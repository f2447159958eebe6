"""`acp_transcripts` and `acp_transcript_turns`: what was imported from Claude's transcripts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from pykoclaw_acp.model.contexts import entry_uuid
from pykoclaw_acp.model.events import Text, Thinking, ToolStarted, decode
from pykoclaw_acp.model.imports import (
    ImportedPiece,
    KnownTranscripts,
    TranscriptRow,
    TranscriptTurn,
)
from pykoclaw_acp.model.turns import TurnOrigin
from pykoclaw_acp.store import limit_waits, notes, permissions
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import (
    BACKGROUND,
    CLIENT,
    LOG_KEY,
    NOT_DELETED,
    QUEUED,
    UNFINISHED,
    kind,
    kinds,
    places,
)

_FIRST: Final = kinds(Text, Thinking, ToolStarted)  # events that carry an id of Claude's
# Not of a subagent, whose calls are in a transcript of its own: its question may have begun the turn.
_OF_CLAUDE: Final = (
    f"CASE WHEN e.kind = {kind(ToolStarted)} AND json_valid(e.payload)"
    " THEN json_extract(e.payload, '$.parent_id') END IS NULL"
)
_BEGINNINGS: Final = tuple(
    "SELECT payload FROM (SELECT t.position AS place, (SELECT e.payload FROM acp_log e"  # noqa: S608  constant
    " WHERE e.log_key = s.log_key AND e.seq BETWEEN t.first_seq AND COALESCE(t.last_seq, 9223372036854775807)"
    f" AND e.turn = t.position AND e.kind IN {_FIRST} AND {_OF_CLAUDE} ORDER BY e.seq LIMIT 1) AS payload"
    " FROM acp_turns t JOIN acp_sessions s ON s.acp_session_id = t.acp_session_id"
    f" WHERE t.acp_session_id = ? AND t.origin = {origin} AND t.first_seq IS NOT NULL"
    " ORDER BY t.position DESC LIMIT ?) AS newest WHERE payload IS NOT NULL"
    for origin in (BACKGROUND, CLIENT)
)
_SAID_FIRST: Final = (
    f"{' UNION ALL '.join(_BEGINNINGS)}"  # noqa: S608  constant
    " UNION ALL SELECT e.payload FROM acp_turns t JOIN acp_events e ON e.turn_id = t.turn_id"
    f" WHERE t.acp_session_id = ? AND t.origin = {BACKGROUND} AND e.kind IN {_FIRST}"
)
_OWN: Final = (
    f"SELECT t.turn_id FROM acp_turns t WHERE t.acp_session_id = ? AND t.origin = {CLIENT}"  # noqa: S608  constant
    f" AND t.state <> {QUEUED}"
)
_NEW: Final = (
    " AND NOT EXISTS (SELECT 1 FROM acp_transcript_turns x"
    " WHERE x.acp_session_id = t.acp_session_id AND x.prompt_uuid = t.turn_id)"
)
_KNOWN: Final = (
    "SELECT claude_session_id, path, size, mtime, inode, read_upto, state, head, related"
    " FROM acp_transcripts WHERE acp_session_id = ? AND claude_session_id"
)
_NEWEST: Final = (
    "SELECT claude_session_id FROM acp_transcripts WHERE acp_session_id = ?"
    " ORDER BY CAST(mtime AS BIGINT) DESC LIMIT ?"
)
_TURNS: Final = (
    "SELECT x.prompt_uuid, x.claude_session_id, x.parent, x.own, x.last_uuid, x.told, n.turn_id"
    " FROM acp_transcript_turns x LEFT JOIN acp_notes n ON n.note_id = x.told_by"
    " WHERE x.acp_session_id = ? ORDER BY x.position DESC LIMIT ?"
)
_AT_ONCE: Final = 500  # sources that are asked for
_LAST: Final = (  # in the transcript; of a turn that the service did not answer nothing else is known
    f"SELECT last_uuid FROM acp_turns WHERE acp_session_id = ? AND origin = {BACKGROUND}"  # noqa: S608  constant
    " AND last_uuid IS NOT NULL ORDER BY position DESC LIMIT ?"
)
_RUNNING: Final = (
    f"SELECT 1 FROM acp_turns WHERE acp_session_id = ? AND origin = {BACKGROUND}"  # noqa: S608  constant
    f" AND state IN {UNFINISHED} LIMIT 1"
)
# Held: from the newest turn that Claude goes on from to the first one; none if it is yet to branch
# off, as it does before whatever it was not told of.
_LACKING: Final = (
    "WITH RECURSIVE held (uuid) AS (SELECT x.head FROM acp_sessions s JOIN acp_transcripts x"
    " ON x.acp_session_id = s.acp_session_id AND x.claude_session_id = s.followed"
    " WHERE s.acp_session_id = ? AND NOT EXISTS (SELECT 1 FROM acp_branches b"
    " WHERE b.acp_session_id = s.acp_session_id) UNION SELECT t.parent FROM held h"
    " JOIN acp_transcript_turns t ON t.acp_session_id = ? AND t.prompt_uuid = h.uuid)"
    " SELECT 1 FROM acp_transcript_turns l WHERE l.acp_session_id = ? AND l.prompt_uuid = ?"
    " AND l.rewound_at IS NULL AND NOT EXISTS (SELECT 1 FROM held WHERE uuid = l.prompt_uuid)"
)
_REWIND: Final = (
    "UPDATE acp_transcript_turns SET rewound_at = ?, told = 1, told_by = NULL"
    " WHERE acp_session_id = ? AND prompt_uuid = ? AND rewound_at IS NULL"
)
_ALL_TOLD: Final = (
    "UPDATE acp_transcript_turns SET told = 1, told_by = (SELECT n.note_id FROM acp_notes n"
    " WHERE n.note_id = told_by AND n.turn_id IS NULL) WHERE acp_session_id = ?"
    " AND claude_session_id <> ? AND (told = 0 OR told_by IS NOT NULL)"
)
# The session has neither followed the Claude session nor seen a transcript of it.
_IF_NEW: Final = (
    " AND EXISTS (SELECT 1 FROM acp_sessions s WHERE s.acp_session_id = ?"
    " AND COALESCE(s.followed, '') <> ?) AND NOT EXISTS (SELECT 1 FROM acp_transcripts x"
    " WHERE x.acp_session_id = ? AND x.claude_session_id = ?)"
)
_TURNS_OF_OURS: Final = (
    "SELECT turn_id, origin, taken_by FROM acp_turns WHERE acp_session_id = ? ORDER BY position"
)
_REWIND_OWN: Final = (
    "UPDATE acp_turns SET rewound_at = ? WHERE turn_id = ? AND rewound_at IS NULL"  # noqa: S608  constant
    f" AND state NOT IN {UNFINISHED}"
)


async def known(
    database: Database, session_id: str, named: Collection[str], newest: int
) -> KnownTranscripts:
    """Transcripts of a session that were looked at: the followed one, those of the Claude sessions
    `named`, and so many that were written last.
    """
    found = await database.read(
        "SELECT followed, EXISTS (SELECT 1 FROM acp_turns WHERE acp_turns.acp_session_id ="
        " acp_sessions.acp_session_id) FROM acp_sessions WHERE acp_session_id = ?",
        (session_id,),
    )
    followed, has_turns = found[0] if found else (None, 0)
    names = {followed or "", *named}
    rows = await database.read(
        f"{_KNOWN} IN {places(names)} UNION {_KNOWN} IN ({_NEWEST})",
        (session_id, *names, session_id, session_id, newest),
    )
    transcripts = [
        TranscriptRow(claude, path, size, int(mtime), int(inode), upto, state, head, bool(related))
        for claude, path, size, mtime, inode, upto, state, head, related in rows
    ]
    return KnownTranscripts(
        followed, {one.claude_session_id: one for one in transcripts}, bool(has_turns)
    )


async def paths(database: Database, session_id: str) -> dict[str, str]:
    """The paths of all transcripts of a session, by their Claude sessions."""
    sql = "SELECT claude_session_id, path FROM acp_transcripts WHERE acp_session_id = ?"
    return dict(await database.read(sql, (session_id,)))


async def turns(database: Database, session_id: str, limit: int) -> list[TranscriptTurn]:
    """Turns of the session's transcripts, in the order in which they were seen; the newest ones."""
    rows = await database.read(_TURNS, (session_id, limit))
    return [
        TranscriptTurn(uuid, claude, parent, bool(own), last, bool(told), told_in)
        for uuid, claude, parent, own, last, told, told_in in reversed(rows)
    ]


async def is_lacking(database: Database, session_id: str, prompt_uuid: str) -> bool:
    """Whether the turn was not rewound, and is not on the branch of the transcripts that Claude
    goes on from, or that branch is yet to begin.
    """
    return bool(await database.read(_LACKING, (*[session_id] * 3, prompt_uuid)))


async def own(database: Database, session_id: str, *, new: bool) -> list[str]:
    """Turns that Claude was given; `new`: which no transcript is known to hold."""
    rows = await database.read(_OWN + (_NEW if new else ""), (session_id,))
    return [turn_id for (turn_id,) in rows]


async def background(database: Database, session_id: str, limit: int) -> tuple[list[str], bool]:
    """Ids with which turns began and ended that Claude began by itself, and with which those of clients
    began: it may have begun one just before. And whether one of Claude's own is running.
    """
    running = bool(await database.read(_RUNNING, (session_id,)))  # first: one may end meanwhile
    rows = await database.read(_SAID_FIRST, (*(session_id, limit) * 2, session_id))
    last = await database.read(_LAST, (session_id, limit))
    ids = [one for (payload,) in rows for one in _ids(payload)]
    return [*ids, *(uuid for (uuid,) in last)], running


async def scheduled(database: Database, conversation: str) -> list[str]:
    """Prompts of the scheduled tasks of a conversation."""
    rows = await database.read(
        "SELECT CAST(prompt AS BLOB) FROM scheduled_tasks WHERE conversation = ?", (conversation,)
    )
    return [prompt.decode("utf-8", "replace") for (prompt,) in rows]


async def imported(database: Database, session_id: str, sources: Collection[str]) -> set[str]:
    """Return those of these sources that the session's log has."""
    found: set[str] = set()
    asked = list(sources)
    while some := asked[:_AT_ONCE]:
        del asked[:_AT_ONCE]
        rows = await database.read(
            f"SELECT source_uuid FROM acp_log WHERE log_key = {LOG_KEY}"  # noqa: S608  placeholders only
            f" AND source_uuid IN {places(some)} UNION ALL SELECT source_uuid FROM acp_events"
            f" WHERE acp_session_id = ? AND source_uuid IN {places(some)}",
            (session_id, *some) * 2,
        )
        found.update(source for (source,) in rows)
    return found


async def rewound(database: Database, session_id: str, prompts: Collection[str]) -> list[str]:
    """Ids of the turns that these prompts of a transcript began, of those that such a turn has taken up,
    and of those that Claude began by itself after them.
    """
    if not prompts:
        return []
    found: dict[str, None] = {}
    gone = False
    for turn_id, origin, taken_by in await database.read(_TURNS_OF_OURS, (session_id,)):
        if origin == TurnOrigin.CLIENT:
            gone = taken_by in found or entry_uuid(turn_id) in prompts
        if gone:
            found[turn_id] = None
    return list(found)


def follow(session_id: str, claude_session_id: str) -> Statement:
    """The session's newest turn is in this Claude session."""
    return Statement(
        "UPDATE acp_sessions SET followed = ? WHERE acp_session_id = ?"
        " AND (followed IS NULL OR followed <> ?)",
        (claude_session_id, session_id, claude_session_id),
    )


def all_told(session_id: str, but: str = "") -> Statement:
    """Claude has to be told of no turn so far, but by pending notes, and of those seen first in the
    Claude session `but`.
    """
    return Statement(_ALL_TOLD, (session_id, but))


def turn_ended(session_id: str, claude_session_id: str) -> tuple[Statement, ...]:
    """The session's newest turn is in this Claude session. If that is a new one, as after `/clear`, what
    was before is meant to be gone: Claude has to be told of no turn of that.
    """
    known = (session_id, claude_session_id)
    left = Statement(_ALL_TOLD + _IF_NEW, known * 3)
    return left, follow(session_id, claude_session_id)


def told(
    session_id: str, turns: Collection[tuple[str, str | None]], note_id: str
) -> tuple[Statement, ...]:
    """Claude is told of these turns by a note, unless they went on since; a pending note that tells of
    none but these is withdrawn.
    """
    uuids = [uuid for uuid, _ in turns]
    these = places(uuids)
    replaced = Statement(
        "DELETE FROM acp_notes AS n WHERE acp_session_id = ? AND turn_id IS NULL AND note_id <> ?"  # noqa: S608
        " AND note_id IN (SELECT told_by FROM acp_transcript_turns WHERE acp_session_id = ?"
        f" AND prompt_uuid IN {these}) AND NOT EXISTS (SELECT 1 FROM acp_transcript_turns x"
        f" WHERE x.acp_session_id = ? AND x.told_by = n.note_id AND x.prompt_uuid NOT IN {these})",
        (session_id, note_id, session_id, *uuids, session_id, *uuids),
    )
    told = (
        Statement(
            "UPDATE acp_transcript_turns SET told = 1, told_by = ? WHERE acp_session_id = ?"
            " AND prompt_uuid = ? AND COALESCE(last_uuid, '') = ?",
            (note_id, session_id, uuid, last or ""),
        )
        for uuid, last in turns
    )
    return (replaced, *told)


def piece(session_id: str, piece: ImportedPiece, own: Collection[str]) -> Iterator[Statement]:
    """Record a piece, apart from its events; fails with Conflict if the session was deleted. `own`: the
    session's turns that were rewound.
    """
    row = piece.row
    yield Statement(
        "INSERT INTO acp_transcripts (acp_session_id, claude_session_id, path, size, mtime, inode,"  # noqa: S608  constant
        " read_upto, state, head, related) SELECT acp_session_id, ?, ?, ?, ?, ?, ?, ?, ?, ?"
        f" FROM acp_sessions WHERE acp_session_id = ? AND {NOT_DELETED}"
        " ON CONFLICT (acp_session_id, claude_session_id) DO UPDATE SET path = excluded.path,"
        " size = excluded.size, mtime = excluded.mtime, inode = excluded.inode,"
        " read_upto = excluded.read_upto, state = excluded.state, head = excluded.head,"
        " related = excluded.related",
        (row.claude_session_id, row.path, row.size, str(row.mtime), str(row.inode),
         row.read_upto, row.state, row.head, int(row.related), session_id),
        rows=1,
    )  # fmt: skip
    for turn in piece.turns:
        yield Statement(
            "INSERT INTO acp_transcript_turns (acp_session_id, prompt_uuid, claude_session_id,"
            " position, parent, own, last_uuid, told) VALUES (?, ?, ?, (SELECT"
            " COALESCE(MAX(position), 0) + 1 FROM acp_transcript_turns WHERE acp_session_id = ?),"
            " ?, ?, ?, ?) ON CONFLICT (acp_session_id, prompt_uuid) DO NOTHING",
            (session_id, turn.uuid, turn.claude_session_id, session_id, turn.parent, int(turn.own),
             turn.last_uuid, int(turn.told)),
        )  # fmt: skip
    for uuid, last in piece.last.items():
        yield Statement(
            "UPDATE acp_transcript_turns SET last_uuid = ?,"
            " told = CASE WHEN rewound_at IS NULL THEN ? ELSE 1 END"
            " WHERE acp_session_id = ? AND prompt_uuid = ?",
            (last, int(piece.told), session_id, uuid),
        )
    for uuid, parent in piece.parents.items():
        yield Statement(
            "UPDATE acp_transcript_turns SET parent = ? WHERE acp_session_id = ? AND prompt_uuid = ?",
            (parent, session_id, uuid),
        )
    for uuid in piece.rewound:
        yield Statement(_REWIND, (now_ms(), session_id, uuid))
    for turn_id in own:
        yield Statement(_REWIND_OWN, (now_ms(), turn_id))
        yield notes.give_again(turn_id)
    if own:
        yield permissions.interrupt_parked(session_id)
    if piece.events:
        at = min(piece.written_at or now_ms(), now_ms())
        yield Statement(
            "UPDATE acp_sessions SET auxiliary = 0, prompted_at = COALESCE(prompted_at, ?),"
            " pruned_at = NULL, updated_at = CASE WHEN updated_at < ? THEN ? ELSE updated_at END"
            " WHERE acp_session_id = ?",
            (at, at, at, session_id),
            rows=1,
        )
    if piece.has_persons_prompt:
        yield limit_waits.forget(session_id)


def _ids(payload: str) -> list[str]:
    """Claude's ids of what an event tells of: a piece of message `m` has the id `m-<place>`."""
    event = decode(payload)
    if isinstance(event, ToolStarted):
        return [event.tool_call_id]
    if isinstance(event, Text | Thinking):
        return [event.message_id.partition("-whole-")[0], event.message_id.rpartition("-")[0]]
    return []
