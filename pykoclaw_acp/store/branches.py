"""`acp_branches`, and the places between turns at which a session can be forked or rewound."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from pykoclaw_acp.errors import InvalidParams, InvalidRequest
from pykoclaw_acp.model import turns
from pykoclaw_acp.model.branches import Branch, ForkPoint, RewindPoint, Rewound
from pykoclaw_acp.model.events import BLOCKED, MOVED, Text, Thinking, ToolStarted, UserMessage
from pykoclaw_acp.model.prompt_text import Note, command_at
from pykoclaw_acp.model.seams import original
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import conversion, imports, notes, remembered
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sql import CLIENT, DONE, LOG_KEY, STARTED, UNFINISHED, kind, kinds, places
from pykoclaw_acp.store.turns import content

REWOUND: Final = "Claude does not remember this message any more: it was rewound."
NO_PROMPT: Final = (
    "The turn of this message was not begun by a prompt that pykoclaw-acp sent, but by another"
    " program or by Claude itself. Nothing was changed. Choose another message."
)
NEVER_SENT: Final = (
    "This message was cancelled before it was sent to Claude, which does not know it: there is nothing of it to"
    " rewind. Nothing was changed. Choose another message."
)
NO_MESSAGE: Final = (
    "No message of this session has this id. `pykoclaw-acp sessions export --format json` shows the"
    " ids, as `messageId`."
)
RUNNING: Final = "The turn of this message still runs. Wait until it has ended."
_OLDEST_RUNNING: Final = (
    f"SELECT MIN(first_seq) FROM acp_turns WHERE acp_session_id = ? AND state IN {STARTED}"  # noqa: S608
)
_TURN: Final = (
    "SELECT first_seq, last_seq, state, rewound_at IS NOT NULL FROM acp_turns"
    " WHERE acp_session_id = ?"
)
_MESSAGE: Final = (
    f"SELECT seq, turn, source_uuid FROM acp_log WHERE log_key = {LOG_KEY}"  # noqa: S608
    f" AND kind IN {kinds(Text, Thinking, UserMessage)} AND payload LIKE ? ESCAPE '!'"
    " ORDER BY seq DESC LIMIT 1"
)
_NEXT_PROMPT: Final = (
    f"SELECT first_seq FROM acp_log WHERE log_key = {LOG_KEY} AND kind = {kind(UserMessage)}"  # noqa: S608
    " AND seq > ? AND NOT payload LIKE ? ESCAPE '!' ORDER BY seq LIMIT 1"
)
_IMPORTED: Final = f"SELECT x.rewound_at IS NOT NULL {remembered.IMPORTED} LIMIT 1"


_REWINDABLE: Final = (
    f"SELECT turn_id, position, first_seq, last_seq FROM acp_turns WHERE acp_session_id = ? AND origin = {CLIENT}"  # noqa: S608
    f" AND first_seq IS NOT NULL AND rewound_at IS NULL AND state NOT IN {UNFINISHED}"
)
# A prompt that never left for Claude, unless a database was put back to before it did.
_NOT_SENT: Final = (
    "dispatched_at IS NULL AND started_at IS NULL AND NOT EXISTS (SELECT 1 FROM acp_transcript_turns x"
    " WHERE x.acp_session_id = acp_turns.acp_session_id AND x.prompt_uuid = acp_turns.turn_id)"
)
# A prompt that a hook took away: the CLI has neither it in the transcript nor copies of files before it.
# In a turn that has taken others up, it may be one of them.
_BLOCKED: Final = (
    f"state = {DONE} AND usage IS NULL AND EXISTS (SELECT 1 FROM acp_sessions s"  # noqa: S608  constants
    " JOIN acp_log b ON b.log_key = s.log_key WHERE s.acp_session_id = acp_turns.acp_session_id"
    " AND b.seq >= acp_turns.first_seq AND b.seq <= acp_turns.last_seq AND b.turn = acp_turns.position"
    f" AND b.kind = {kind(Text)} AND INSTR(b.payload, '{BLOCKED}\"') > 0)"
    " AND NOT EXISTS (SELECT 1 FROM acp_turns x WHERE x.acp_session_id = acp_turns.acp_session_id"
    " AND x.taken_by = acp_turns.turn_id)"
)
# Claude knows the prompt.
_SENT: Final = f" AND NOT ({_NOT_SENT}) AND NOT ({_BLOCKED})"
_UNSENT: Final = (
    "SELECT 1 FROM acp_turns WHERE acp_session_id = ? AND turn_id IN (?, ?) AND first_seq IS NULL"  # noqa: S608
    f" AND {_NOT_SENT}"
)
_REFUSED: Final = (
    f"SELECT CASE WHEN origin = {CLIENT} AND stop_reason = 'refusal' AND rewound_at IS NULL"  # noqa: S608
    " AND lost_at IS NULL AND taken_by IS NULL AND first_seq IS NOT NULL THEN last_seq END"
    f" FROM acp_turns WHERE acp_session_id = ? AND state NOT IN {UNFINISHED}{_SENT}"
    " ORDER BY position DESC LIMIT 1"
)
_NEWEST_IMPORTED: Final = f"SELECT l.seq {remembered.IMPORTED} LIMIT 1"
_COUNT: Final = (
    f"SELECT COUNT(*) FROM acp_turns WHERE acp_session_id = ? AND position >= ? AND origin = {CLIENT}"  # noqa: S608
    f" AND rewound_at IS NULL{_SENT}"
)
_PROMPTS: Final = (
    "SELECT turn_id, CASE WHEN LENGTH(prompt) < 8192 THEN prompt ELSE '' END FROM acp_turns"  # noqa: S608
    f" WHERE acp_session_id = ? AND position >= ? AND origin = {CLIENT} AND rewound_at IS NULL"
    f"{_SENT} ORDER BY position LIMIT 1000"
)
# Claude's tools for files were used before a move that is after the place.
_MOVED: Final = (
    f"SELECT 1 FROM acp_log m WHERE m.log_key = {LOG_KEY} AND m.seq > ? AND m.kind = {kind(Text)}"  # noqa: S608
    f""" AND INSTR(m.payload, '"message_id":"{MOVED}') > 0 AND EXISTS (SELECT 1 FROM acp_log e"""
    f" WHERE e.log_key = m.log_key AND e.seq < m.seq AND e.kind = {kind(ToolStarted)}"
    """ AND INSTR(e.payload, '"tool_kind":"edit"') > 0) LIMIT 1"""
)
_REWIND: Final = (
    "UPDATE acp_turns SET rewound_at = ? WHERE acp_session_id = ? AND rewound_at IS NULL"  # noqa: S608
    f" AND state NOT IN {UNFINISHED}"
    " AND position >= (SELECT t.position FROM acp_turns t WHERE t.turn_id = ?)"
)
_REWIND_IMPORTED: Final = (
    "UPDATE acp_transcript_turns SET rewound_at = ? WHERE acp_session_id = ?"  # noqa: S608
    f" AND own = 0 AND rewound_at IS NULL AND EXISTS (SELECT 1 FROM acp_log l WHERE l.log_key = {LOG_KEY}"
    " AND l.source_uuid = prompt_uuid || ':0'"
    " AND l.seq >= (SELECT t.first_seq FROM acp_turns t WHERE t.turn_id = ?))"
)


class _Place(NamedTuple):
    upto: int
    rewound: bool = False


def save(session_id: str, branch: Branch) -> Statement:
    """The session's next Claude session branches off there."""
    return Statement(
        "INSERT INTO acp_branches (acp_session_id, claude_session_id, last_uuid) VALUES (?, ?, ?)"
        " ON CONFLICT (acp_session_id) DO UPDATE SET"
        " claude_session_id = excluded.claude_session_id, last_uuid = excluded.last_uuid",
        (session_id, branch.source, branch.at),
    )


def drop(session_id: str) -> Statement:
    """The session has a Claude session of its own, or goes on elsewhere."""
    return Statement("DELETE FROM acp_branches WHERE acp_session_id = ?", (session_id,))


async def branched_off(database: Database, claude_session_ids: Collection[str]) -> set[str]:
    """Return those of these Claude sessions at which another one is yet to begin, or would if a fork
    was rewound to a turn of its source's: such turns have ids that begin with the fork's.
    """
    rows = await database.read(
        "SELECT b.claude_session_id FROM acp_branches b"  # noqa: S608  placeholders only
        " JOIN acp_sessions s ON s.acp_session_id = b.acp_session_id"
        f" WHERE s.deleted_at IS NULL AND b.claude_session_id IN {places(claude_session_ids)}"
        " UNION SELECT t.claude_session_id FROM acp_sessions s CROSS JOIN acp_turns t"
        " ON t.turn_id > s.acp_session_id || '/' AND t.turn_id < s.acp_session_id || '0'"
        f" WHERE s.deleted_at IS NULL AND t.claude_session_id IN {places(claude_session_ids)}",
        (*claude_session_ids,) * 2,
    )
    return {claude for (claude,) in rows}


async def point(
    database: Database, record: SessionRecord, last_seq: int, message_id: str | None
) -> ForkPoint:
    """The end of the turn that a message belongs to; without a message that of the last turn that
    has ended.

    Raises InvalidParams for an unknown message, InvalidRequest if its turn runs, or if it is not
    known what Claude remembers there.
    """
    await conversion.complete(database, record.session_id)
    complete, place = True, _Place(last_seq)
    if message_id is not None:
        place = await _end_of(database, record.session_id, message_id, last_seq)
    else:
        ((oldest,),) = await database.read(_OLDEST_RUNNING, (record.session_id,))
        if oldest is not None:
            complete, place = False, _Place(oldest - 1)
    if place.rewound:
        raise InvalidRequest(REWOUND)
    at_end = complete and place.upto >= last_seq
    memory = await remembered.at(database, record, place.upto, at_end=at_end)
    return ForkPoint(place.upto, memory, complete)


async def rewind_point(
    database: Database, record: SessionRecord, message_id: str | None
) -> RewindPoint:
    """The beginning of the turn that a message belongs to; without one, of the newest prompt that
    Claude knows.

    Raises InvalidParams for an unknown message, InvalidRequest if the turn was rewound, nothing was
    prompted, the message was cancelled in the queue, or it is not known what Claude remembers there.
    """
    session = record.session_id
    await conversion.complete(database, session)
    newest = f"{_REWINDABLE}{_SENT} ORDER BY position DESC LIMIT 1"
    values: tuple[object, ...] = (session,)
    if message_id is not None:
        place = await _end_of(database, session, message_id, record.last_seq)
        known = original(message_id)
        if await database.read(_UNSENT, (session, known, copied(session, known))):
            raise InvalidRequest(NEVER_SENT)
        if place.rewound:
            raise InvalidRequest(REWOUND)
        newest = f"{_REWINDABLE} AND first_seq <= ? ORDER BY position DESC LIMIT 1"
        values = (session, place.upto)
    found = await database.read(newest, values)
    if not found:
        raise InvalidRequest("There is no prompt to rewind to.")
    turn_id, position, first, last = found[0]
    if message_id is not None and last != place.upto:
        raise InvalidRequest(NO_PROMPT)
    memory = await remembered.at(database, record, first - 1, at_end=False, rewinding=turn_id)
    ((count,),) = await database.read(_COUNT, (session, position))
    commands, after = await _commands(database, session, position)
    moved = bool(await database.read(_MOVED, (session, first - 1)))
    return RewindPoint(turn_id, count, first - 1, memory, commands, after, moved)


async def refused(database: Database, record: SessionRecord) -> RewindPoint | None:
    """The beginning of the newest turn, if Claude has refused its prompt, which a client has sent,
    and nothing came after it. None also where it is not known what Claude remembers there.
    """
    newest = await database.read(_REFUSED, (record.session_id,))
    if not newest or newest[0][0] is None:
        return None
    imported = await database.read(_NEWEST_IMPORTED, (*[record.session_id] * 2, record.last_seq))
    if imported and imported[0][0] > newest[0][0]:
        return None
    try:
        return await rewind_point(database, record, None)
    except InvalidRequest:
        return None


async def _commands(
    database: Database, session_id: str, position: int
) -> tuple[tuple[str, ...], str | None]:
    """Prompts from there on that Claude knows: those before the first that is no slash command, and
    that one.
    """
    commands: list[str] = []
    for turn_id, prompt in await database.read(_PROMPTS, (session_id, position)):
        if command_at(content(prompt)) is None:
            return tuple(commands), turn_id
        commands.append(turn_id)
    return tuple(commands), None


async def rewound(database: Database, request_key: str) -> Rewound | None:
    """What the rewind of this request has changed; None if there was none."""
    found = await database.read(
        "SELECT result FROM acp_rewinds WHERE request_key = ?", (request_key,)
    )
    return msgspec.json.decode(found[0][0], type=Rewound) if found else None


def begun(session_id: str) -> str:
    """The key of a rewind of the session that is not done; that of a request is another one."""
    return f"begun {session_id}"


def begin_rewind(session_id: str, planned: Rewound) -> Statement:
    """A rewind is about to change this."""
    return Statement(
        "INSERT OR REPLACE INTO acp_rewinds (request_key, acp_session_id, result) VALUES (?, ?, ?)",
        (begun(session_id), session_id, msgspec.json.encode(planned).decode()),
    )


def rewind(
    session_id: str, point: RewindPoint, done: Rewound, note: Note | None, request_key: str | None
) -> Iterator[Statement]:
    """Claude does not remember what came from there on; the log keeps it. It is told of the note, or
    again of what it was told with the first of these prompts, but of nothing that was rewound.
    """
    if request_key is not None:
        yield Statement(
            "INSERT INTO acp_rewinds (request_key, acp_session_id, result) VALUES (?, ?, ?)",
            (request_key, session_id, msgspec.json.encode(done).decode()),
        )
    yield Statement("DELETE FROM acp_rewinds WHERE request_key = ?", (begun(session_id),))
    at = time.time_ns() // 1_000_000
    yield Statement(_REWIND, (at, session_id, point.turn_id))
    yield Statement(_REWIND_IMPORTED, (at, session_id, session_id, point.turn_id))
    if note is None:
        yield notes.give_again(point.turn_id)
    yield notes.give_delivered_again(session_id, point.upto, at)
    yield notes.withdraw_rewound(session_id)
    yield imports.all_told(session_id)
    if note is not None:
        yield notes.add(session_id, note.note_id, note.text)
    yield save(session_id, point.branch)


async def _end_of(database: Database, session_id: str, message_id: str, last_seq: int) -> _Place:
    """The end of the turn that the message belongs to."""
    message_id = original(message_id)
    for turn_id in (message_id, copied(session_id, message_id)):
        rows = await database.read(f"{_TURN} AND turn_id = ?", (session_id, turn_id))
        if rows and rows[0][0] is not None:
            return _ended(*rows[0][1:])
    escaped = message_id.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    like = f'%"message!_id":"{escaped}"%'
    found = await database.read(_MESSAGE, (session_id, like))
    if not found:
        raise InvalidParams(NO_MESSAGE)
    seq, position, source = found[0]
    if position is not None:
        rows = await database.read(f"{_TURN} AND position = ?", (session_id, position))
        if rows:
            return _ended(*rows[0][1:])
    following = await database.read(_NEXT_PROMPT, (session_id, seq, like))
    rewound = False
    if source is not None:
        imported = await database.read(_IMPORTED, (session_id, session_id, seq))
        rewound = bool(imported and imported[0][0])
    return _Place(following[0][0] - 1 if following else last_seq, rewound)


def _ended(last: int | None, state: str, rewound: int) -> _Place:
    if state in turns.UNFINISHED:
        raise InvalidRequest(RUNNING)
    if last is None:  # from before there were positions of turns
        raise InvalidRequest(remembered.NOT_KNOWN)
    return _Place(last, bool(rewound))


def copied(session_id: str, turn_id: str) -> str:
    """Id of the copy of a turn in a fork."""
    return f"{session_id}/{turn_id}"
