"""`acp_sessions`, and the row of `conversations` that each one shares with pykoclaw's other programs."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

from pykoclaw_acp.sessions.model import SessionRecord
from pykoclaw_acp.store.database import Database, Statement


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def insert(record: SessionRecord) -> tuple[Statement, ...]:
    """A new session; its conversation has no Claude session yet."""
    at = now_ms()
    session = Statement(
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, additional_directories, model,"
        " created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            record.session_id,
            record.conversation_name,
            record.cwd,
            json.dumps(record.additional_directories),
            record.model,
            at,
            at,
        ),
    )
    conversation = Statement(
        "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, NULL, ?, ?)",
        (record.conversation_name, record.cwd, datetime.now(UTC).isoformat()),
    )
    return session, conversation


def set_claude_session(session_id: str, claude_session_id: str) -> Statement:
    """A turn has reached this Claude session's transcript: whoever continues the conversation resumes it."""
    return Statement(
        "INSERT INTO conversations (name, session_id, cwd, created_at)"
        " SELECT conversation_name, ?, cwd, ? FROM acp_sessions WHERE acp_session_id = ?"
        " ON CONFLICT (name) DO UPDATE SET session_id = excluded.session_id",
        (claude_session_id, datetime.now(UTC).isoformat(), session_id),
    )


def reopen(record: SessionRecord) -> Statement:
    """What a load changes."""
    return Statement(
        "UPDATE acp_sessions SET cwd = ?, additional_directories = ?, closed_at = NULL, updated_at = ?"
        " WHERE acp_session_id = ?",
        (record.cwd, json.dumps(record.additional_directories), now_ms(), record.session_id),
        rows=1,
    )


def close(session_id: str) -> Statement:
    """The client closed it."""
    return Statement("UPDATE acp_sessions SET closed_at = ? WHERE acp_session_id = ?", (now_ms(), session_id), rows=1)


async def find(database: Database, session_id: str) -> SessionRecord | None:
    """The session with its conversation's Claude session, unless there is none or it was deleted."""
    rows = await database.read(
        "SELECT s.conversation_name, s.cwd, s.additional_directories, s.model, s.last_seq, s.closed_at, c.session_id"
        " FROM acp_sessions s LEFT JOIN conversations c ON c.name = s.conversation_name"
        " WHERE s.acp_session_id = ? AND s.deleted_at IS NULL",
        (session_id,),
    )
    if not rows:
        return None
    name, cwd, directories, model, last_seq, closed_at, claude = rows[0]
    return SessionRecord(
        session_id=session_id,
        conversation_name=name,
        cwd=cwd,
        additional_directories=tuple(json.loads(directories)),
        model=model,
        last_seq=last_seq,
        claude_session_id=claude,
        closed=closed_at is not None,
    )


async def name_taken(database: Database, name: str) -> bool:
    """Whether a conversation, ours or another channel's, has this name."""
    rows = await database.read(
        "SELECT EXISTS (SELECT 1 FROM conversations WHERE name = ?)"
        " OR EXISTS (SELECT 1 FROM acp_sessions WHERE conversation_name = ?)",
        (name, name),
    )
    return bool(rows[0][0])
