"""`acp_sessions`, and each one's row of `conversations`, which pykoclaw's other programs share."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.choices import DEFAULT_MODEL, Config
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, TitleChanged
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import readable, session_options
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.logs import DROP, LAST_SEQ
from pykoclaw_acp.store.sql import COMPLETED, CWD, UNFINISHED


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def insert(record: SessionRecord, clock: int) -> tuple[Statement, ...]:
    """Insert a session and its conversation. `clock`, here and below: the own clock's
    reading (ms).
    """
    at = now_ms()
    session = Statement(
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, real_cwd, additional_directories, mode,"
        " model, config, request_key, client, created_at, updated_at, used_clock)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.session_id,
            record.conversation_name,
            record.cwd,
            record.real_cwd,
            json.dumps(record.additional_directories),
            record.mode,
            record.model,
            None if record.config == Config() else _written(record.config),
            record.request_key,
            record.client,
            at,
            at,
            clock,
        ),
    )
    conversation = Statement(
        "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, NULL, ?, ?)",
        (record.conversation_name, record.cwd, now_text()),
    )
    if record.options == SessionOptions():
        return session, conversation
    return session, conversation, session_options.keep(record.session_id, record.options)


def reopen(record: SessionRecord, clock: int) -> Statement:
    """Reopen a session with the record's directories; other programs may have prompted it.

    Its place in lists stays, apart from the millisecond by which an adopted one is known to be opened.
    """
    return Statement(
        "UPDATE acp_sessions SET cwd = ?, real_cwd = ?, additional_directories = ?, closed_at = NULL, pruned_at = NULL,"
        " prompted_at = COALESCE(prompted_at, ?),"
        " updated_at = CASE WHEN updated_at = created_at THEN updated_at + 1 ELSE updated_at END,"
        " used_clock = ? WHERE acp_session_id = ? AND deleted_at IS NULL",
        (
            record.cwd,
            record.real_cwd,
            json.dumps(record.additional_directories),
            now_ms() if record.prompted else None,
            clock,
            record.session_id,
        ),
        rows=1,
    )


def chosen(session_id: str, clock: int) -> Statement:
    """Update the time of last use for what does not move the session in lists, as a new title."""
    return Statement(
        "UPDATE acp_sessions SET used_clock = ? WHERE acp_session_id = ? AND deleted_at IS NULL",
        (clock, session_id),
    )


def used(session_id: str, clock: int) -> Statement:
    """Update the time of last use; not for each piece of an answer."""
    return Statement(
        "UPDATE acp_sessions SET updated_at = ?, used_clock = ? WHERE acp_session_id = ? AND deleted_at IS NULL",
        (now_ms(), clock, session_id),
    )


def prompted(session_id: str, clock: int, *, helper: bool) -> Statement:
    """A prompt was accepted; a session is auxiliary until a person prompts it."""
    at = now_ms()
    return Statement(
        "UPDATE acp_sessions SET"
        " auxiliary = CASE WHEN ? = 1 AND (prompted_at IS NULL OR auxiliary = 1) THEN 1 ELSE 0 END,"
        " prompted_at = COALESCE(prompted_at, ?), pruned_at = NULL, updated_at = ?, used_clock = ?"
        " WHERE acp_session_id = ? AND deleted_at IS NULL",
        (int(helper), at, at, clock, session_id),
        rows=1,
    )


def received(session_id: str, clock: int) -> Statement:
    """A message for the user was delivered: from now on the session is a conversation in use."""
    at = now_ms()
    return Statement(
        "UPDATE acp_sessions SET auxiliary = 0, prompted_at = COALESCE(prompted_at, ?), pruned_at = NULL,"
        " updated_at = ?, used_clock = ? WHERE acp_session_id = ? AND deleted_at IS NULL",
        (at, at, clock, session_id),
        rows=1,
    )


def follow(session_id: str, events: Sequence[Event]) -> Iterator[Statement]:
    """Apply events that change the session's mode, model, config or title."""
    for event in events:
        if isinstance(event, ModeChanged):
            yield Statement(
                "UPDATE acp_sessions SET mode = ? WHERE acp_session_id = ?",
                (event.mode, session_id),
            )
        elif isinstance(event, ConfigChanged):
            # The default stays the default until somebody chooses.
            yield Statement(
                "UPDATE acp_sessions SET model = ? WHERE acp_session_id = ? AND (model IS NOT NULL OR ? <> ?)",
                (event.selection.model, session_id, event.selection.model, DEFAULT_MODEL),
            )
            if (config := event.selection.config) is not None:
                yield Statement(
                    "UPDATE acp_sessions SET config = ? WHERE acp_session_id = ?",
                    (_written(config), session_id),
                )
        elif isinstance(event, TitleChanged):
            yield Statement(
                "UPDATE acp_sessions SET title = ?, title_by = ? WHERE acp_session_id = ?",
                (event.title, event.by, session_id),
            )


_UNUSED: Final = (
    "acp_sessions.used_clock < ? AND acp_sessions.pruned_at IS NULL"  # noqa: S608  constant
    " AND acp_sessions.deleted_at IS NULL AND acp_sessions.alias_of IS NULL"
    " AND (acp_sessions.auxiliary = 1 OR acp_sessions.prompted_at IS NULL"
    # A conversation that another channel has started is in use.
    " AND NOT EXISTS (SELECT 1 FROM conversations WHERE name = conversation_name AND session_id IS NOT NULL))"
    " AND NOT EXISTS (SELECT 1 FROM acp_turns WHERE acp_turns.acp_session_id = acp_sessions.acp_session_id"
    f" AND state IN {UNFINISHED})"
    " AND NOT EXISTS (SELECT 1 FROM acp_permissions WHERE acp_permissions.acp_session_id = acp_sessions.acp_session_id"
    " AND outcome IS NULL)"
    # A run aside is kept until it has its result, and until the next one of its task.
    " AND NOT EXISTS (SELECT 1 FROM acp_task_runs r LEFT JOIN scheduled_tasks t ON t.id = r.task_id"
    " WHERE r.acp_session_id = acp_sessions.acp_session_id AND r.aside = 1 AND (r.ended_at IS NULL"
    f" OR (t.id IS NOT NULL AND COALESCE(t.status, '') <> {COMPLETED})))"
    # A log in the old form is converted first: only logs with a key are hidden at once.
    " AND NOT EXISTS (SELECT 1 FROM acp_events WHERE acp_events.acp_session_id = acp_sessions.acp_session_id)"
)


async def unused(database: Database, before: int) -> list[str]:
    """Sessions never prompted by a person and not used since `before` (ms, own clock)."""
    rows = await database.read(
        f"SELECT acp_session_id FROM acp_sessions WHERE {_UNUSED}",  # noqa: S608  constant
        (before,),
    )
    return [session_id for (session_id,) in rows]


def prune(session_id: str, before: int) -> tuple[Statement, ...]:
    """Hide an unused session and its log; `last_seq` stays, since no seq is assigned twice.

    For a unit that renumbers. What is left is deleted in pieces (`store/deletion.py`).
    """
    hide = (
        "UPDATE acp_sessions SET pruned_at = ?, last_seq ="  # noqa: S608  constants
        " COALESCE((SELECT MAX(seq) FROM acp_log WHERE acp_log.log_key = acp_sessions.log_key"
        " AND acp_log.seq > acp_sessions.last_seq), last_seq)"
        f" WHERE acp_session_id = ? AND {_UNUSED}"
    )
    return (
        Statement(hide, (now_ms(), session_id, before), rows=1),
        *(Statement(sql, (session_id,)) for sql in DROP),
        Statement("DELETE FROM acp_cursors WHERE acp_session_id = ?", (session_id,)),
        Statement("DELETE FROM acp_notes WHERE acp_session_id = ?", (session_id,)),
    )


def close(session_id: str) -> Statement:
    """The client has closed the session."""
    return Statement(
        "UPDATE acp_sessions SET closed_at = ? WHERE acp_session_id = ?",
        (now_ms(), session_id),
        rows=1,
    )


async def find(database: Database, session_id: str) -> SessionRecord | None:
    """The session that this id, which may be an alias, stands for; None if there is none or it was
    deleted.
    """
    rows = await database.read(
        f"SELECT s.acp_session_id, s.conversation_name, {CWD}, s.additional_directories, s.mode, s.model,"  # noqa: S608
        f" s.config, s.title, {LAST_SEQ},"
        " (SELECT MIN(begin) - 1 FROM (SELECT (SELECT e.first_seq FROM acp_log e WHERE e.log_key = s.log_key"
        " ORDER BY e.seq LIMIT 1) AS begin UNION ALL SELECT MIN(o.seq) FROM acp_events o"
        " WHERE o.acp_session_id = s.acp_session_id) AS begins),"
        " s.prompted_at, s.auxiliary, s.closed_at, s.away_policy,"
        " COALESCE(s.followed, NULLIF(c.session_id, '')), p.options,"
        " b.claude_session_id, b.last_uuid, s.steering, s.title_by, s.real_cwd,"
        " (SELECT CAST(r.task AS BLOB) FROM acp_task_runs r"
        " WHERE r.acp_session_id = s.acp_session_id AND r.aside = 1 LIMIT 1)"
        " FROM acp_sessions a JOIN acp_sessions s ON s.acp_session_id = COALESCE(a.alias_of, a.acp_session_id)"
        " LEFT JOIN conversations c ON c.name = s.conversation_name"
        " LEFT JOIN acp_session_options p ON p.acp_session_id = s.acp_session_id"
        " LEFT JOIN acp_branches b ON b.acp_session_id = s.acp_session_id"
        " WHERE a.acp_session_id = ? AND s.deleted_at IS NULL",
        (session_id,),
    )
    if not rows:
        return None
    owner, name, cwd, directories, mode, model, config, title, last_seq, before, *rest = rows[0]
    prompted_at, helper, closed_at, away, claude, options, *more = rest
    branches_off, at, steering, title_by, real_cwd, task = more
    if not isinstance(last_seq, int):
        raise TypeError("last_seq is no number")
    return SessionRecord(
        session_id=owner,
        conversation_name=name,
        cwd=cwd,
        real_cwd=real_cwd,
        additional_directories=readable.texts(directories),
        mode=mode,
        model=model,
        config=readable.decode_or_default(config, Config),
        options=readable.decode_or_default(options, SessionOptions),
        title=title,
        title_by=title_by or "",
        last_seq=last_seq,
        pruned_upto=last_seq if before is None else before,
        prompted=prompted_at is not None,
        auxiliary=bool(helper),
        claude_session_id=claude,
        closed=closed_at is not None,
        away_policy=AwayPolicy(away) if away in [*AwayPolicy] else None,
        steers=steering == "steer",
        branch=None if branches_off is None else Branch(branches_off, at),
        works_for=None if task is None else _conversation(task),
    )


def _written(config: Config) -> str:
    return msgspec.json.encode(config).decode()


class _RunsTask(msgspec.Struct):
    conversation: str


def _conversation(task: bytes) -> str | None:
    """The conversation of a task as it was claimed; None if that cannot be read."""
    try:
        return msgspec.json.decode(task, type=_RunsTask).conversation
    except (msgspec.MsgspecError, ValueError):
        return None


def set_away_policy(session_id: str, policy: AwayPolicy | None) -> Statement:
    """Set the session's own away policy; None: that of the settings."""
    return Statement(
        "UPDATE acp_sessions SET away_policy = ? WHERE acp_session_id = ?",
        (policy, session_id),
        rows=1,
    )


def set_archived(session_id: str, *, archived: bool) -> Statement:
    """Archive a session, or take it back; the time of an archived one stays."""
    at = "COALESCE(archived_at, ?)" if archived else "NULL"
    return Statement(
        f"UPDATE acp_sessions SET archived_at = {at} WHERE acp_session_id = ? AND deleted_at IS NULL",  # noqa: S608
        (*((now_ms(),) if archived else ()), session_id),
        rows=1,
    )


def set_steering(session_id: str, *, steers: bool) -> Statement:
    """Whether prompts go into the running turn unless they say otherwise."""
    return Statement(
        "UPDATE acp_sessions SET steering = ? WHERE acp_session_id = ?",
        ("steer" if steers else None, session_id),
        rows=1,
    )


async def find_created(database: Database, request_key: str) -> str | None:
    """Id of the session that this `session/new` request has created."""
    rows = await database.read(
        "SELECT acp_session_id FROM acp_sessions WHERE request_key = ?", (request_key,)
    )
    return str(rows[0][0]) if rows else None


async def id_taken(database: Database, session_id: str) -> bool:
    """Whether a session has or had this id, or a Claude session of it, which may be deleted."""
    rows = await database.read(
        "SELECT EXISTS (SELECT 1 FROM acp_sessions WHERE acp_session_id = ?)"
        " OR EXISTS (SELECT 1 FROM conversations WHERE session_id = ?)"
        " OR EXISTS (SELECT 1 FROM acp_deleted_transcripts WHERE claude_session_id = ?)",
        (session_id, session_id, session_id),
    )
    return bool(rows[0][0])


async def name_taken(database: Database, name: str) -> bool:
    """Whether a conversation of any channel has this name."""
    rows = await database.read(
        "SELECT EXISTS (SELECT 1 FROM conversations WHERE name = ?)"
        " OR EXISTS (SELECT 1 FROM acp_sessions WHERE conversation_name = ?)",
        (name, name),
    )
    return bool(rows[0][0])
