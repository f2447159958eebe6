"""Queries over all sessions, for operators; answered from indexes or small tables."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pykoclaw_acp.model.permissions import RequestPolicy
from pykoclaw_acp.model.turns import STARTED, TurnState
from pykoclaw_acp.model.workers import WorkerState
from pykoclaw_acp.protocol.control.daemon import SessionCounts
from pykoclaw_acp.protocol.control.sessions import TurnInfo
from pykoclaw_acp.store import readable
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.logs import LAST_SEQ
from pykoclaw_acp.store.remembered import IMPORTED
from pykoclaw_acp.store.sql import (
    QUEUED,
    UNFINISHED,
)
from pykoclaw_acp.store.turns import NEWEST_FIRST, content
from pykoclaw_acp.tasks import Pace

TURNS_SHOWN: Final = 20
MOST_OF_PROMPT: Final = 64 * 1024  # characters; of a longer one nothing is shown


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """A worker, with its session's title and what it is doing."""

    session_id: str
    title: str | None
    epoch: int
    pid: int
    protocol: int
    created_at: int
    state: WorkerState
    workspace: str | None
    """How far the worker trusts its directory; None: it was launched by a version before trust."""


@dataclass(frozen=True, slots=True)
class MoreOfSession:
    """A session's fields beyond its summary."""

    additional_directories: list[str]
    model: str | None
    away_policy: str | None
    claude_session: str | None
    events: int
    turn_count: int
    other_turns: int
    """Turns of its log that other programs have run, as far as they were imported; a fork knows more."""
    turns: list[TurnInfo]
    prompts: list[list[dict[str, Any]]]
    """Content of the prompt of each of `turns`; empty for a long one."""


async def details(database: Database, session_id: str) -> MoreOfSession:
    """The details of an existing session."""
    ((directories, model, away, claude, events),) = await database.read(
        f"SELECT s.additional_directories, s.model, s.away_policy, c.session_id, {LAST_SEQ}"  # noqa: S608
        " FROM acp_sessions s LEFT JOIN conversations c ON c.name = s.conversation_name WHERE s.acp_session_id = ?",
        (session_id,),
    )
    ((count, others),) = await database.read(
        "SELECT (SELECT COUNT(*) FROM acp_turns WHERE acp_session_id = ?),"  # noqa: S608  constant
        f" (SELECT COUNT(DISTINCT x.prompt_uuid) {IMPORTED})",
        (session_id, session_id, session_id, events),
    )
    rows = await database.read(
        "SELECT turn_id, CASE WHEN task_id IS NULL THEN origin ELSE 'task' END, state, stop_reason, error,"  # noqa: S608  constant
        " created_at, started_at, ended_at, rewound_at, CASE WHEN length(prompt) <= ? THEN prompt END FROM acp_turns"
        f" WHERE acp_session_id = ? ORDER BY {NEWEST_FIRST} LIMIT ?",
        (MOST_OF_PROMPT, session_id, TURNS_SHOWN),
    )
    turns = [
        TurnInfo(
            id=turn_id,
            prompt=None,
            origin=origin,
            state=state,
            stop_reason=stop_reason,
            error=_object(error),
            created_at=created_at,
            started_at=started_at,
            ended_at=ended_at,
            rewound_at=rewound_at,
        )
        for (
            turn_id,
            origin,
            state,
            stop_reason,
            error,
            created_at,
            started_at,
            ended_at,
            rewound_at,
            _,
        ) in rows
    ]
    prompts: list[list[dict[str, Any]]] = []
    pace = Pace()
    for row in rows:
        prompts.append(content(row[-1]))
        await pace.step()
    return MoreOfSession(
        list(readable.texts(directories)),
        model,
        away,
        claude,
        events,
        count,
        others,
        turns,
        prompts,
    )


async def came(database: Database, turn_id: str) -> int | None:
    """When the prompt of a turn came (ms since 1970); None if there is no such turn."""
    rows = await database.read("SELECT created_at FROM acp_turns WHERE turn_id = ?", (turn_id,))
    return int(rows[0][0]) if rows else None


async def counts(database: Database) -> SessionCounts:
    """Number of sessions by kind; pruned ones count as unused."""
    rows = await database.read(
        "SELECT COALESCE(SUM(prompted_at IS NOT NULL AND auxiliary = 0), 0),"
        " COALESCE(SUM(prompted_at IS NOT NULL AND auxiliary <> 0), 0), COALESCE(SUM(prompted_at IS NULL), 0)"
        " FROM acp_sessions WHERE deleted_at IS NULL AND alias_of IS NULL"
    )
    conversations, helpers, unused = rows[0]
    return SessionCounts(conversations=conversations, helpers=helpers, unused=unused)


async def queue(database: Database) -> tuple[int, int]:
    """Number of running and of queued turns."""
    rows = await database.read(
        f"SELECT state, COUNT(*) FROM acp_turns WHERE state IN {UNFINISHED} GROUP BY state"  # noqa: S608  constant
    )
    by_state = dict(rows)
    return sum(by_state.get(state, 0) for state in STARTED), by_state.get(TurnState.QUEUED, 0)


async def workers(database: Database) -> list[WorkerSummary]:
    """Workers that are not known to be gone, the oldest first."""
    rows = await database.read(
        "SELECT w.acp_session_id, s.title, w.epoch, w.pid, w.protocol, w.created_at,"  # noqa: S608  constant
        " EXISTS (SELECT 1 FROM acp_permissions p WHERE p.acp_session_id = w.acp_session_id"
        " AND p.outcome IS NULL AND p.policy <> ?),"
        " EXISTS (SELECT 1 FROM acp_turns t WHERE t.acp_session_id = w.acp_session_id"
        f" AND t.state IN {UNFINISHED} AND t.state <> {QUEUED}), w.workspace"
        " FROM acp_workers w LEFT JOIN acp_sessions s ON s.acp_session_id = w.acp_session_id"
        " ORDER BY w.created_at, w.acp_session_id",
        (RequestPolicy.PARKED,),
    )
    found: list[WorkerSummary] = []
    for session_id, title, epoch, pid, protocol, created_at, asks, works, workspace in rows:
        busy = WorkerState.WORKING if works else WorkerState.IDLE
        state = WorkerState.ASKING if asks else busy
        row = (session_id, title, epoch, pid, protocol, created_at, state, workspace)
        found.append(WorkerSummary(*row))
    return found


def size(database: Database) -> int:
    """Size of the database on disk in bytes, including its journals."""
    size = 0
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):  # a journal comes and goes with each commit
            size += database.path.with_name(database.path.name + suffix).stat().st_size
    return size


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(text) if text else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
