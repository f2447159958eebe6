"""Queries over all sessions, for operators; answered from indexes or small tables."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.permissions import RequestPolicy
from pykoclaw_acp.model.turns import STARTED, TurnState
from pykoclaw_acp.model.workers import WorkerState
from pykoclaw_acp.protocol.control.daemon import SessionCounts
from pykoclaw_acp.protocol.control.sessions import SessionSummary, TurnInfo
from pykoclaw_acp.store import readable
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.logs import LAST_SEQ
from pykoclaw_acp.store.remembered import IMPORTED
from pykoclaw_acp.store.sql import CONTINUED, CWD, HAS_SESSION, QUEUED, UNFINISHED, of_channels
from pykoclaw_acp.store.turns import NEWEST_FIRST, content
from pykoclaw_acp.tasks import Pace

TURNS_SHOWN: Final = 20
MOST_OF_PROMPT: Final = 64 * 1024  # characters; of a longer one nothing is shown

# The plus rules out the index of the session's turns; the one of unfinished turns is smaller.
_SUMMARY: Final = (
    f"SELECT s.acp_session_id, s.conversation_name, s.title, {CWD}, s.client, s.created_at, s.updated_at,"  # noqa: S608
    f" s.prompted_at, s.closed_at, s.pruned_at, s.archived_at, s.auxiliary, s.prompted_at IS NULL AND {CONTINUED},"
    " EXISTS (SELECT 1 FROM acp_turns t"
    f" WHERE +t.acp_session_id = s.acp_session_id AND t.state IN {UNFINISHED})"
    " FROM acp_sessions s LEFT JOIN conversations c ON c.name = s.conversation_name"
)
_UNOPENED: Final = (
    f"SELECT c.name, c.created_at FROM conversations c WHERE {CONTINUED} AND NOT {HAS_SESSION}"  # noqa: S608
)


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


async def matching(database: Database, word: str) -> list[str]:
    """Ids of the sessions that `word` matches: as an id, a conversation's name, or the beginning of
    an id.

    Aliases match, too. An exact id or name matches alone; of a beginning two matches at most are
    returned.
    """
    rows = await database.read(
        "SELECT DISTINCT COALESCE(alias_of, acp_session_id) FROM acp_sessions"
        " WHERE (acp_session_id = ? OR conversation_name = ?) AND deleted_at IS NULL",
        (word, word),
    )
    if not rows and word:
        # A character above all that ids contain, so that the prefix becomes a range of the index.
        rows = await database.read(
            "SELECT DISTINCT COALESCE(alias_of, acp_session_id) FROM acp_sessions"
            " WHERE acp_session_id >= ? AND acp_session_id < ? AND deleted_at IS NULL LIMIT 2",
            (word, word + "\U0010ffff"),
        )
    return [session_id for (session_id,) in rows]


async def listing(
    database: Database, *, every: bool, limit: int, hidden: Collection[str] = ()
) -> AsyncIterator[SessionSummary]:
    """Sessions, those with the newest messages first, then conversations that other programs began and no client has
    opened.

    Without `every` only those that a person has prompted, and nobody has archived. `hidden` channels
    are left out. Yields to other tasks in between, however many there are.
    """
    used = (
        ""
        if every
        else " AND s.auxiliary = 0 AND s.pruned_at IS NULL AND s.archived_at IS NULL"
        f" AND (s.prompted_at IS NOT NULL OR {CONTINUED})"
    )
    shown, channels = of_channels("s.conversation_name", hidden)
    rows = await database.read(
        f"{_SUMMARY} WHERE s.deleted_at IS NULL AND s.alias_of IS NULL{used}{shown}"
        " ORDER BY s.updated_at DESC, s.acp_session_id DESC LIMIT ?",
        (*channels, limit),
    )
    shown, channels = of_channels("c.name", hidden)
    sql = f"{_UNOPENED}{shown} ORDER BY c.created_at DESC, c.name LIMIT ?"
    return _summaries(rows, await database.read(sql, (*channels, limit - len(rows))))


async def _summaries(
    rows: list[tuple[Any, ...]], unopened: list[tuple[Any, ...]]
) -> AsyncIterator[SessionSummary]:
    pace = Pace()
    for left, summarize in ((rows, _summary), (unopened, _unopened)):
        left.reverse()
        while left:
            # Released one by one: releasing all at once would block, too.
            yield summarize(left.pop())
            await pace.step()


async def summary(database: Database, session_id: str) -> SessionSummary | None:
    """One session; None if there is none, or it was deleted."""
    rows = await database.read(
        f"{_SUMMARY} WHERE s.acp_session_id = ? AND s.deleted_at IS NULL", (session_id,)
    )
    return _summary(rows[0]) if rows else None


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
    prompts = [content(row[-1]) for row in rows]
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
    files = [
        database.path.with_name(database.path.name + suffix)
        for suffix in ("", "-wal", "-shm", "-journal")
    ]
    return sum(file.stat().st_size for file in files if file.exists())


def _summary(row: tuple[Any, ...]) -> SessionSummary:
    (
        session_id,
        name,
        title,
        cwd,
        client,
        created,
        updated,
        prompted,
        closed,
        pruned,
        archived,
        auxiliary,
        elsewhere,
        busy,
    ) = row
    return SessionSummary(
        id=session_id,
        conversation=readable.name(name),
        channel=conversations.channel(readable.name(name)),
        title=readable.text(title),
        cwd=readable.text(cwd),
        client=readable.text(client),
        created_at=readable.number(created) or 0,
        updated_at=readable.number(updated) or 0,
        prompted_at=readable.number(prompted),
        closed_at=readable.number(closed),
        pruned_at=readable.number(pruned),
        archived_at=readable.number(archived),
        auxiliary=bool(auxiliary),
        elsewhere=bool(elsewhere),
        busy=bool(busy),
    )


def _unopened(row: tuple[Any, ...]) -> SessionSummary:
    """A conversation without a session; a time that cannot be read is 0."""
    name, created_at = row
    try:
        at = round(datetime.fromisoformat(created_at).timestamp() * 1000)
    except (TypeError, ValueError):
        at = 0
    return SessionSummary(
        id=conversations.id_of(name),
        conversation=name,
        channel=conversations.channel(name),
        title=conversations.title(name),
        cwd=None,
        client=None,
        created_at=at,
        updated_at=at,
        prompted_at=None,
        closed_at=None,
        pruned_at=None,
        archived_at=None,
        auxiliary=False,
        elsewhere=True,
        busy=False,
    )


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(text) if text else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
