"""Forks: a session with a copy of another one's history, written in pieces while it is hidden, and
shown by one short transaction.

Until then its `deleted_at` is 0, which no query shows. A start after a crash gives it up, and what
was copied is deleted as that of a deleted session. Files of Claude are not touched: the fork's
Claude session begins with its first prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pykoclaw_acp import crash_points
from pykoclaw_acp.model.branches import Fork, ForkedAt
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.store import blobs, branches, conversion, events, notes, sessions
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.logs import NEXT_KEY
from pykoclaw_acp.store.pieces import PIECE_SIZE, Pieces
from pykoclaw_acp.store.sql import LOG_KEY, UNFINISHED

_BEGIN: Final = (
    "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, additional_directories, title, mode,"  # noqa: S608
    " model, options, auxiliary, prompted_at, away_policy, steering, config, client, last_seq, created_at, updated_at,"
    " used_clock, deleted_at, log_key) SELECT ?, ?, ?, ?, title, mode, model, options, auxiliary, prompted_at,"
    " away_policy, steering, config, ?, CASE WHEN last_seq > ? THEN ? ELSE last_seq END, ?, ?, ?, 0,"
    f" {NEXT_KEY} FROM acp_sessions WHERE acp_session_id = ? AND deleted_at IS NULL"
)
_SHOW: Final = (
    "UPDATE acp_sessions SET deleted_at = NULL, request_key = ? WHERE acp_session_id = ? AND deleted_at = 0"
    " AND EXISTS (SELECT 1 FROM acp_sessions s WHERE s.acp_session_id = ? AND s.deleted_at IS NULL)"
)
_ABANDON: Final = "UPDATE acp_sessions SET deleted_at = ? WHERE deleted_at = 0"
_CONVERSATION: Final = (
    "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, NULL, ?, ?)"
)
_PLACE: Final = "INSERT INTO acp_forks (acp_session_id, upto, complete) VALUES (?, ?, ?)"
_OPTIONS: Final = (
    "INSERT INTO acp_session_options (acp_session_id, options)"
    " SELECT ?, options FROM acp_session_options WHERE acp_session_id = ?"
)
_SURROUNDINGS: Final = (
    "INSERT INTO acp_surroundings (acp_session_id, account, variables, secrets)"
    " SELECT ?, account, variables, secrets FROM acp_surroundings WHERE acp_session_id = ?"
)
# Those that a turn has carried, so that they can be pending again when that is rewound.
_CARRIED: Final = (
    "INSERT INTO acp_notes (note_id, acp_session_id, position, text, after_seq, turn_id)"
    " SELECT ? || '/' || note_id, ?, n.position, text, n.after_seq, ? || '/' || n.turn_id FROM acp_notes n"
    " JOIN acp_turns t ON t.turn_id = ? || '/' || n.turn_id"
    " WHERE n.acp_session_id = ? ON CONFLICT (note_id) DO NOTHING"
)


# Each table: the keys and sizes of the rows that are left, and the copy of those up to a key. A row
# at the end of which a piece ended may have taken over the seq of a state that was replaced since.
_LOG: Final = (
    (
        f"SELECT seq, LENGTH(payload) FROM acp_log WHERE log_key = {LOG_KEY} AND seq > ? AND seq <= ?"  # noqa: S608
        " ORDER BY seq LIMIT ?"
    ),
    (
        "INSERT INTO acp_log (log_key, seq, first_seq, turn, kind, source_uuid, cuts, payload)"  # noqa: S608
        f" SELECT {LOG_KEY}, seq, CASE WHEN cuts IS NULL AND first_seq <= ? THEN ? + 1 ELSE first_seq END,"
        f" turn, kind, source_uuid, cuts, payload FROM acp_log WHERE log_key = {LOG_KEY}"
        " AND seq > ? AND seq <= ?"
    ),
)
_OLD_LOG: Final = (
    (
        "SELECT seq, LENGTH(payload) FROM acp_events WHERE acp_session_id = ? AND seq > ? AND seq <= ?"
        " ORDER BY seq LIMIT ?"
    ),
    (
        "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, source_uuid, created_at)"
        " SELECT ?, seq, ? || '/' || turn_id, kind, payload, source_uuid, created_at FROM acp_events"
        " WHERE acp_session_id = ? AND seq > ? AND seq <= ?"
    ),
)
_ENDED: Final = f"state NOT IN {UNFINISHED} AND COALESCE(first_seq, 0) <= ?"
_TURNS: Final = (
    (
        f"SELECT turn_id, 200 FROM acp_turns WHERE acp_session_id = ? AND {_ENDED} AND turn_id > ?"  # noqa: S608
        " ORDER BY turn_id LIMIT ?"
    ),
    (
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, stop_reason, error, usage, client,"  # noqa: S608
        " created_at, dispatched_at, started_at, ended_at, answered_at, position, first_seq, last_seq,"
        " claude_session_id, last_uuid, rewound_at, lost_at, taken_by)"
        " SELECT ? || '/' || turn_id, ?, origin, '[]', state, stop_reason, error, usage, client, created_at,"
        " dispatched_at, started_at, ended_at, answered_at, position, first_seq, last_seq, claude_session_id,"
        " last_uuid, rewound_at, lost_at, ? || '/' || taken_by FROM acp_turns"
        f" WHERE acp_session_id = ? AND {_ENDED} AND turn_id > ? AND turn_id <= ?"
    ),
)
# What the fork's transcript will hold besides its own turns: copies of these.
_KNOWN: Final = (
    (
        "SELECT prompt_uuid, 200 FROM acp_transcript_turns WHERE acp_session_id = ? AND prompt_uuid > ?"
        " ORDER BY prompt_uuid LIMIT ?"
    ),
    (
        "INSERT INTO acp_transcript_turns (acp_session_id, prompt_uuid, claude_session_id, position, parent, own,"
        " last_uuid, told, rewound_at, lost_at, told_by)"
        " SELECT ?, prompt_uuid, claude_session_id, position, parent, own, last_uuid, 1, rewound_at, lost_at,"
        " ? || '/' || told_by"
        " FROM acp_transcript_turns WHERE acp_session_id = ? AND prompt_uuid > ? AND prompt_uuid <= ?"
    ),
)
_RUN: Final = (
    "SELECT turn_id, 200 FROM acp_turns WHERE acp_session_id = ? AND turn_id > ? ORDER BY turn_id LIMIT ?",
    (
        "INSERT INTO acp_transcript_turns (acp_session_id, prompt_uuid, claude_session_id, position, own, told)"
        " SELECT ?, turn_id, COALESCE(claude_session_id, ?), COALESCE(position, 0), 1, 1 FROM acp_turns"
        " WHERE acp_session_id = ? AND turn_id > ? AND turn_id <= ?"
        " ON CONFLICT (acp_session_id, prompt_uuid) DO NOTHING"
    ),
)


class _CopiedTable(NamedTuple):
    """A table's statements, and their parameters, in which `after` and `upto` are keys."""

    left: str
    of_left: Callable[[Any, int], tuple[object, ...]]
    copy: str
    of_copy: Callable[[Any, Any], tuple[object, ...]]
    first: object  # a key below all


async def fork(database: Database, fork: Fork, clock: int) -> None:
    """Make the fork: it is there whole when this returns, and hidden, to be given up, otherwise.
    Raises Conflict if the source, or the fork, was deleted meanwhile, and StoreUnavailable.
    """
    await conversion.complete(database, fork.source)  # rows that move meanwhile would not be copied
    upto, source, own, at = fork.point.upto, fork.source, fork.session_id, sessions.now_ms()
    begin = (
        *(own, fork.conversation_name, fork.cwd, json.dumps(fork.directories), fork.client),
        *(upto, upto, at, at, clock, source),
    )
    await database.commit(Unit(statements=(Statement(_BEGIN, begin, rows=1),)))
    crash_points.reached("fork_begun")
    for table in _tables(fork):
        await copy_rows(database, table)
    statements = tuple(_show(fork))
    said = events.rows(own, None, fork.said)
    await database.commit(Unit(statements, said, durable=True))
    crash_points.reached("fork_shown")


async def forked_at(database: Database, session_id: str) -> ForkedAt | None:
    """Where this fork was made; None for one of a version that did not note it."""
    rows = await database.read(
        "SELECT upto, complete FROM acp_forks WHERE acp_session_id = ?", (session_id,)
    )
    return ForkedAt(rows[0][0], bool(rows[0][1])) if rows else None


async def abandon(database: Database) -> None:
    """Give up the forks that an earlier server has not finished."""
    if not await database.read("SELECT 1 FROM acp_sessions WHERE deleted_at = 0 LIMIT 1"):
        return
    await database.commit(
        Unit(statements=(Statement(_ABANDON, (sessions.now_ms(),)),)), patient=True
    )


def _tables(fork: Fork) -> Iterator[_CopiedTable]:
    source, own, upto = fork.source, fork.session_id, fork.point.upto
    claude = "" if fork.point.memory.branch is None else fork.point.memory.branch.source
    yield _CopiedTable(
        _LOG[0], lambda after, limit: (source, after, upto, limit),
        _LOG[1], lambda after, end: (own, after, after, source, after, end), 0,
    )  # fmt: skip
    yield _CopiedTable(
        _OLD_LOG[0], lambda after, limit: (source, after, upto, limit),
        _OLD_LOG[1], lambda after, end: (own, own, source, after, end), 0,
    )  # fmt: skip
    yield _CopiedTable(
        _TURNS[0], lambda after, limit: (source, upto, after, limit),
        _TURNS[1], lambda after, end: (own, own, own, source, upto, after, end), "",
    )  # fmt: skip
    yield _CopiedTable(
        _KNOWN[0], lambda after, limit: (source, after, limit),
        _KNOWN[1], lambda after, end: (own, own, source, after, end), "",
    )  # fmt: skip
    yield _CopiedTable(
        _RUN[0], lambda after, limit: (source, after, limit),
        _RUN[1], lambda after, end: (own, claude, source, after, end), "",
    )  # fmt: skip


async def copy_rows(database: Database, table: _CopiedTable) -> None:
    """Copy the rows of a table in pieces, so that others can write between them."""
    pieces, after = Pieces(), table.first
    while rows := await database.read(table.left, table.of_left(after, pieces.rows)):
        end = _end_of_piece(rows)
        piece = Statement(table.copy, table.of_copy(after, end))
        await pieces.commit(database, Unit(statements=(piece,)))
        crash_points.reached("fork_piece_copied")
        after = end


def _end_of_piece(rows: Sequence[tuple[Any, ...]]) -> object:
    size, end = 0, rows[0][0]
    for at, (key, length) in enumerate(rows):
        size += length
        if at and size > PIECE_SIZE:
            break
        end = key
    return end


def _show(fork: Fork) -> Iterator[Statement]:
    own, source = fork.session_id, fork.source
    yield Statement(_SHOW, (fork.request_key, own, source), rows=1)
    yield Statement(_CONVERSATION, (fork.conversation_name, fork.cwd, now_text()))
    yield Statement(_PLACE, (own, fork.point.upto, int(fork.point.complete)))
    yield Statement(_OPTIONS, (own, source))
    yield Statement(_SURROUNDINGS, (own, source))
    yield blobs.share(source, own)
    if fork.point.memory.branch is not None:
        yield branches.save(own, fork.point.memory.branch)
    if fork.at_end:
        yield notes.copy_pending(source, own)
    else:
        yield notes.copy_delivered(source, own, fork.point.upto)
    yield Statement(_CARRIED, (own, own, own, own, source))
    if fork.note is not None:
        yield notes.add(own, fork.note.note_id, fork.note.text)
    yield from sessions.follow(own, fork.said)
