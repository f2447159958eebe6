"""Summaries of sessions, for operators: one, lists of them, and the ids that a word stands for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import datetime
from functools import partial
from typing import Any, Final

from pykoclaw_acp.model import conversations
from pykoclaw_acp.protocol.control.sessions import SessionSummary
from pykoclaw_acp.store import readable
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sql import (
    CONTINUED,
    CWD,
    HAS_SESSION,
    OF_DELETED,
    OF_OURS,
    UNFINISHED,
    of_channels,
)
from pykoclaw_acp.tasks import Pace

REST: Final = 0.001  # s between steps; each bare yield costs the others a switch of threads

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
_TERMINAL: Final = (
    "SELECT f.claude_session_id, f.title, f.cwd, f.updated_at FROM acp_found_transcripts f"  # noqa: S608  constants
    f" WHERE f.listed = 1 AND NOT {OF_OURS} AND NOT {OF_DELETED}"
)


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


async def of_terminals(database: Database, beginning: str) -> list[str]:
    """Claude sessions of terminals that no client has opened, whose ids begin so; two at most."""
    sql = f"{_TERMINAL} AND f.claude_session_id >= ? AND f.claude_session_id < ? LIMIT 2"
    found = await database.read(sql, (beginning, beginning + "\U0010ffff"))
    return [row[0] for row in found]


async def listing(
    database: Database,
    *,
    every: bool,
    limit: int,
    hidden: Collection[str] = (),
    terminals: bool = False,
) -> AsyncIterator[SessionSummary]:
    """Sessions, those with the newest messages first, with `terminals` also what was begun in one, then conversations
    that other programs began and no client has opened.

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
    unopened = await database.read(sql, (*channels, limit - len(rows)))
    sql = f"{_TERMINAL} ORDER BY f.updated_at DESC, f.claude_session_id DESC LIMIT ?"
    begun = await database.read(sql, (limit,)) if terminals else []
    return _summaries(rows, begun, unopened, limit)


async def _summaries(
    rows: list[tuple[Any, ...]],
    begun: list[tuple[Any, ...]],
    unopened: list[tuple[Any, ...]],
    limit: int,
) -> AsyncIterator[SessionSummary]:
    """The newest ones; `begun`: in terminals."""
    pace = Pace(partial(asyncio.sleep, REST))
    for group in (rows, begun, unopened):
        group.reverse()
    while rows or begun or unopened:
        # Released one by one: releasing all at once would block, too.
        if begun and (not rows or _at(begun, 3) > _at(rows, 6)):  # their updated_at
            one = _of_terminal(begun.pop())
        else:
            one = _summary(rows.pop()) if rows else _unopened(unopened.pop())
        if limit > 0:
            yield one
        limit -= 1
        await pace.step()


def _at(rows: list[tuple[Any, ...]], column: int) -> int:
    return readable.number(rows[-1][column]) or 0


async def summary(database: Database, session_id: str) -> SessionSummary | None:
    """One session; None if there is none, or it was deleted."""
    rows = await database.read(
        f"{_SUMMARY} WHERE s.acp_session_id = ? AND s.deleted_at IS NULL", (session_id,)
    )
    return _summary(rows[0]) if rows else None


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
    title = conversations.title(name)
    return _elsewhere(conversations.id_of(name), name, title, None, at)


def _of_terminal(row: tuple[Any, ...]) -> SessionSummary:
    session_id, title, cwd, updated = row
    at = readable.number(updated) or 0
    return _elsewhere(session_id, "", readable.text(title), readable.text(cwd), at)


def _elsewhere(
    session_id: str, name: str, title: str | None, cwd: str | None, at: int
) -> SessionSummary:
    """What other programs have begun, and no client has opened."""
    return SessionSummary(
        id=session_id,
        conversation=name,
        channel=conversations.channel(name),
        title=title,
        cwd=cwd,
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
