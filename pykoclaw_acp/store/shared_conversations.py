"""`conversations`, which other programs write as well, and the sessions that are made for its rows.

A row with a Claude session and without a session of ours is a conversation that another program
began.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.conversations import (
    OWN,
    Conversation,
    ConversationOwner,
    FollowedConversation,
)
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import imports
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import CONTINUED, HAS_SESSION, places

MOST_AT_ONCE: Final = 500  # parameters of a query
_INSERT: Final = (
    "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, additional_directories, model, title, client,"
    " created_at, updated_at, used_clock)"
)


async def find(database: Database, name: str) -> Conversation | None:
    """The row of this name."""
    rows = await database.read(
        "SELECT name, session_id, cwd, system_prompt_hash FROM conversations WHERE name = ?",
        (name,),
    )
    return _conversation(*rows[0]) if rows else None


def _conversation(name: str, *values: object) -> Conversation:
    """What other programs have written; what is no text counts as nothing."""
    claude, cwd, hashed = (one if isinstance(one, str) else None for one in values)
    return Conversation(name, claude or None, cwd, hashed)


async def continued(database: Database, after: str, limit: int) -> list[str]:
    """Names above `after`, in order, of conversations that have a Claude session."""
    rows = await database.read(
        f"SELECT c.name FROM conversations c WHERE c.name > ? AND {CONTINUED} ORDER BY c.name LIMIT ?",  # noqa: S608
        (after, limit),
    )
    return [name for (name,) in rows]


async def owner_of(database: Database, name: str) -> ConversationOwner | None:
    """The session of this conversation, also a deleted one."""
    rows = await database.read(
        "SELECT acp_session_id, deleted_at IS NOT NULL FROM acp_sessions"
        " WHERE conversation_name = ? AND alias_of IS NULL ORDER BY deleted_at IS NOT NULL LIMIT 1",
        (name,),
    )
    return ConversationOwner(str(rows[0][0]), bool(rows[0][1])) if rows else None


def adopt(record: SessionRecord, clock: int) -> Statement:
    """Insert a session for a conversation that can be continued and has none."""
    return Statement(
        f"{_INSERT} SELECT ?, c.name, ?, ?, ?, ?, ?, ?, ?, ? FROM conversations c"  # noqa: S608  constants
        f" WHERE c.name = ? AND {CONTINUED} AND NOT {HAS_SESSION}",
        (*_values(record, clock), record.conversation_name),
        rows=1,
    )


def begin(record: SessionRecord, clock: int) -> tuple[Statement, ...]:
    """Insert a conversation that no program has begun, unless its row is there, and its session."""
    conversation = Statement(
        "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, NULL, ?, ?)"
        " ON CONFLICT (name) DO NOTHING",
        (record.conversation_name, record.cwd, now_text()),
    )
    session = Statement(
        f"{_INSERT} SELECT ?, c.name, ?, ?, ?, ?, ?, ?, ?, ? FROM conversations c"  # noqa: S608  constants
        f" WHERE c.name = ? AND NOT {HAS_SESSION}",
        (*_values(record, clock), record.conversation_name),
        rows=1,
    )
    return conversation, session


def add_alias(session_id: str, owner: str, clock: int, *, only: bool) -> Statement:
    """Insert a further id of a session; `only`: if it has no other one."""
    at = now_ms()
    alone = (
        " AND NOT EXISTS (SELECT 1 FROM acp_sessions other WHERE other.alias_of = s.acp_session_id)"
    )
    return Statement(
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, alias_of, created_at, updated_at, used_clock)"  # noqa: S608  constant
        " SELECT ?, s.conversation_name, s.acp_session_id, ?, ?, ? FROM acp_sessions s"
        f" WHERE s.acp_session_id = ? AND s.deleted_at IS NULL{alone if only else ''}",
        (session_id, at, at, clock, owner),
        rows=1,
    )


async def followed(database: Database, session_id: str) -> FollowedConversation:
    """What the session follows."""
    rows = await database.read(
        "SELECT c.name, c.session_id, c.cwd, c.system_prompt_hash, s.followed, s.prompt_hash"
        " FROM acp_sessions s LEFT JOIN conversations c ON c.name = s.conversation_name"
        " WHERE s.acp_session_id = ?",
        (session_id,),
    )
    if not rows:
        raise Conflict(f"the session {session_id} is gone")
    name, claude, cwd, hashed, own, own_hash = rows[0]
    row = None if name is None else _conversation(name, claude, cwd, hashed)
    return FollowedConversation(row, own, own_hash)


async def changed_rows(database: Database, session_ids: Collection[str]) -> dict[str, str]:
    """Return the Claude sessions in rows of those sessions that follow another one, by session."""
    ids = list(session_ids)
    found: dict[str, str] = {}
    for at in range(0, len(ids), MOST_AT_ONCE):
        some = ids[at : at + MOST_AT_ONCE]
        rows = await database.read(
            "SELECT s.acp_session_id, c.session_id FROM acp_sessions s"  # noqa: S608
            " JOIN conversations c ON c.name = s.conversation_name"
            f" WHERE s.acp_session_id IN {places(some)} AND {CONTINUED}"
            " AND c.session_id <> COALESCE(s.followed, '')",
            tuple(some),
        )
        found.update(rows)
    return found


async def moved_rows(database: Database) -> dict[str, str]:
    """Return the Claude sessions in rows whose sessions follow another one, by session."""
    rows = await database.read(
        "SELECT s.acp_session_id, c.session_id FROM acp_sessions s"  # noqa: S608  constant
        " JOIN conversations c ON c.name = s.conversation_name WHERE s.followed IS NOT NULL"
        f" AND c.session_id <> s.followed AND {CONTINUED} AND s.alias_of IS NULL"
        " AND s.deleted_at IS NULL"
    )
    return dict(rows)


def follow_claude_session(session_id: str, conversation: Conversation) -> Statement:
    """The session follows the Claude session of this row."""
    return Statement(
        "UPDATE acp_sessions SET followed = ?, prompt_hash = ? WHERE acp_session_id = ?",
        (conversation.claude_session_id, conversation.prompt_hash, session_id),
    )


def put_right(session_id: str, read: Conversation, followed: str | None) -> Statement:
    """Let the row name the session's own Claude session again, unless it no longer names the one
    that was `read`. It gets the hash that belongs to it, but none, with which every program resumes,
    if the row has another one: a program whose system prompt has changed would begin anew each time.
    """
    return Statement(
        "UPDATE conversations SET session_id = ?, system_prompt_hash ="
        " (SELECT CASE WHEN COALESCE(system_prompt_hash, s.prompt_hash) = s.prompt_hash"
        " THEN s.prompt_hash END FROM acp_sessions s WHERE s.acp_session_id = ?)"
        " WHERE name = ? AND session_id = ?",
        (followed, session_id, read.name, read.claude_session_id),
    )


def put_first(row: Conversation) -> Statement:
    """Let the next turn of a conversation go on from this row's Claude session, as pykoclaw writes
    it, unless it has a Claude session by now, or a session of ours.
    """
    return Statement(
        "INSERT INTO conversations (name, session_id, cwd, created_at, system_prompt_hash)"  # noqa: S608  constant
        f" SELECT c.name, ?, ?, ?, ? FROM (SELECT ? AS name) c WHERE NOT {HAS_SESSION}"
        " ON CONFLICT (name) DO UPDATE SET session_id = excluded.session_id, cwd = excluded.cwd,"
        " system_prompt_hash = excluded.system_prompt_hash"
        " WHERE COALESCE(conversations.session_id, '') = ''",
        (row.claude_session_id, row.cwd, now_text(), row.prompt_hash, row.name),
    )


def turn_ended(session_id: str, claude_session_id: str) -> tuple[Statement, ...]:
    """The session has a turn more in this Claude session: others continue it from there.

    A row that names a Claude session which this one does not follow stays: it is looked at first.
    The directory in the row is the session's in a conversation of ACP clients, and else its
    channel's.
    """
    row = Statement(
        "INSERT INTO conversations (name, session_id, cwd, created_at)"
        " SELECT conversation_name, ?, cwd, ? FROM acp_sessions WHERE acp_session_id = ?"
        " ON CONFLICT (name) DO UPDATE SET session_id = excluded.session_id,"
        " cwd = CASE WHEN excluded.name LIKE ? THEN COALESCE(excluded.cwd, conversations.cwd)"
        " ELSE COALESCE(conversations.cwd, excluded.cwd) END"
        " WHERE COALESCE(conversations.session_id, '') IN ('', excluded.session_id,"
        " (SELECT followed FROM acp_sessions WHERE acp_session_id = ?))",
        (claude_session_id, now_text(), session_id, f"{OWN}-%", session_id),
    )
    return row, *imports.turn_ended(session_id, claude_session_id)


def _values(record: SessionRecord, clock: int) -> tuple[object, ...]:
    at = now_ms()
    return (
        record.session_id,
        record.cwd,
        json.dumps(record.additional_directories),
        record.model,
        record.title,
        record.client,
        at,
        at,
        clock,
    )
