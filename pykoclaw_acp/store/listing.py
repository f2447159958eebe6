"""Pages of the list of sessions: of each kind the first rows after a place, read from an index."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from pykoclaw_acp.link.lines import MAX_NUMBER
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.listing import Archived, ListedSession, ListQuery
from pykoclaw_acp.store import readable
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sql import CONTINUED, HAS_SESSION, OF_DELETED, OF_OURS, of_channels

# As in the partial indexes: the conditions must be the same ones.
_VISIBLE: Final = (
    " s.pruned_at IS NULL AND s.deleted_at IS NULL AND s.alias_of IS NULL AND s.prompted_at IS"
)
_PROMPTED: Final = f"{_VISIBLE} NOT NULL AND s.auxiliary = 0 AND s.archived_at IS"
_SESSION: Final = (
    "SELECT s.updated_at AS at, s.acp_session_id AS id, s.conversation_name AS name,"
    " COALESCE(s.cwd, c.cwd) AS cwd, s.title AS title, s.additional_directories AS directories,"
    " CASE WHEN s.archived_at IS NULL THEN 0 ELSE 1 END AS archived"
    " FROM acp_sessions s LEFT JOIN conversations c ON c.name = s.conversation_name WHERE"
)
_TRANSCRIPT: Final = (
    "SELECT f.updated_at AS at, f.claude_session_id AS id, NULL AS name, f.cwd AS cwd,"  # noqa: S608  constants
    " f.title AS title, '[]' AS directories, 0 AS archived FROM acp_found_transcripts f"
    f" WHERE f.listed = 1 AND NOT {OF_OURS} AND NOT {OF_DELETED}"
)
# Names of ACP clients' conversations, of which there are as many as sessions, are a range of the key.
_OTHERS: Final = " UNION ALL ".join(
    "SELECT c.name, c.session_id, c.cwd, c.created_at, (SELECT MAX(f.updated_at)"  # noqa: S608  constants
    " FROM acp_found_transcripts f WHERE f.claude_session_id = c.session_id)"
    f" FROM conversations c WHERE c.name {part} AND {CONTINUED} AND NOT {HAS_SESSION}"
    for part in (f"< '{conversations.OWN}-'", f">= '{conversations.OWN}.'")
)


async def listed(database: Database, query: ListQuery) -> list[ListedSession]:
    """The first sessions after the place, of ours, of other programs and of Claude's transcripts."""
    others, theirs = await _others(database, query)
    sql, parameters = _statement(query, len(theirs))
    found = [
        ListedSession(
            session_id,
            name if name is None else readable.name(name),
            readable.text(cwd),
            _place(at),
            readable.text(title),
            readable.texts(directories),
            bool(archived),
        )
        for at, session_id, name, cwd, title, directories, archived in (
            await database.read(sql, parameters)
        )
        if isinstance(session_id, str) and (name is not None or session_id not in theirs)
    ]
    found += others
    found.sort(key=lambda one: one.place, reverse=True)
    return found[: query.limit]


def _statement(query: ListQuery, more: int) -> tuple[str, tuple[Any, ...]]:
    """All kinds in one statement; `more`: rows besides those that are wanted."""
    limit = query.limit + more
    sql: list[str] = []
    parameters: list[Any] = []
    for select, own, place in _parts(query):
        for cwd in query.cwds or (None,):
            part, given = f"{select}", list(own)
            if cwd is not None:
                part, given = f"{part} AND {place[0]}.cwd = ?", [*given, cwd]
            if query.after is not None:
                part = f"{part} AND ({place[0]}.updated_at, {place[0]}.{place[1]}) < (?, ?)"
                given += query.after
            order = f"ORDER BY {place[0]}.updated_at DESC, {place[0]}.{place[1]} DESC LIMIT ?"
            sql.append(f"SELECT * FROM ({part} {order}) AS part")  # noqa: S608  constants
            parameters += [*given, limit]
    return f"{' UNION ALL '.join(sql)} ORDER BY at DESC, id DESC LIMIT ?", (*parameters, limit)


def _parts(query: ListQuery) -> Iterator[tuple[str, tuple[Any, ...], tuple[str, str]]]:
    """Statements, each with its parameters and where its key is."""
    shown, channels = of_channels("s.conversation_name", query.hidden)
    key = ("s", "acp_session_id")
    if query.archived is not Archived.ONLY:
        yield f"{_SESSION}{_PROMPTED} NULL{shown}", channels, key
        yield (
            f"{_SESSION}{_VISIBLE} NULL AND s.archived_at IS NULL AND {CONTINUED}{shown}",
            channels,
            key,
        )
        if query.transcripts:
            yield _TRANSCRIPT, (), ("f", "claude_session_id")
    if query.archived is not Archived.EXCLUDE:
        yield f"{_SESSION}{_PROMPTED} NOT NULL{shown}", channels, key


async def _others(database: Database, query: ListQuery) -> tuple[list[ListedSession], set[str]]:
    """Conversations of other channels that have no session yet, as far as they belong to the page;
    and the Claude sessions of all of them.
    """
    rows = [] if query.archived is Archived.ONLY else await database.read(_OTHERS)
    found = [
        ListedSession(
            conversations.id_of(name),
            name,
            readable.text(cwd),
            _place(at) if at else _time(created),
            conversations.title(name),
        )
        for name, _, cwd, created, at in rows
        if isinstance(name, str) and conversations.channel(name) not in query.hidden
    ]
    if query.cwds is not None:
        found = [one for one in found if one.cwd in query.cwds]
    if (after := query.after) is not None:
        found = [one for one in found if one.place < after]
    return found, {claude for _, claude, *_ in rows}


def _place(at: object) -> int:
    """A time by which a list is sorted; of one that is none, where the database sorts it: first."""
    found = readable.number(at)
    return MAX_NUMBER if found is None else min(found, MAX_NUMBER)


def _time(written: str) -> int:
    """Milliseconds; 0 for a time that cannot be read."""
    try:
        return round(datetime.fromisoformat(written).timestamp() * 1000)
    except (TypeError, ValueError):
        return 0
