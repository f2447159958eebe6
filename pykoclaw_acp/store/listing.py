"""Pages of the list of sessions: of each kind the first rows after a place, read from an index."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pykoclaw_acp.link.lines import MAX_NUMBER
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.listing import Archived, ListedSession, ListQuery
from pykoclaw_acp.store import readable
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.readers import Rows
from pykoclaw_acp.store.sql import (
    CONTINUED,
    CWD,
    HAS_SESSION,
    OF_DELETED,
    OF_OURS,
    of_channels,
    places,
)
from pykoclaw_acp.store.unopened import Unopened

# As in the partial indexes: the conditions must be the same ones.
_VISIBLE: Final = (
    " s.pruned_at IS NULL AND s.deleted_at IS NULL AND s.alias_of IS NULL AND s.prompted_at IS"
)
_PROMPTED: Final = f"{_VISIBLE} NOT NULL AND s.auxiliary = 0 AND s.archived_at IS"
_BEGIN: Final = "SELECT s.updated_at AS at, s.acp_session_id AS id, s.conversation_name AS name,"
_END: Final = (
    " AS cwd, s.title AS title, s.additional_directories AS directories,"
    " CASE WHEN s.archived_at IS NULL THEN 0 ELSE 1 END AS archived, s.real_cwd AS real_cwd"
    " FROM acp_sessions s"
)
# Nearly every session has its directory: the conversation's row is read for the others only.
_SESSION: Final = (
    f"{_BEGIN} COALESCE(s.cwd, (SELECT c.cwd FROM conversations c"  # noqa: S608  constants
    f" WHERE c.name = s.conversation_name)){_END} WHERE"
)
_UNPROMPTED: Final = (
    f"{_BEGIN} COALESCE(s.cwd, c.cwd){_END}"
    " JOIN conversations c ON c.name = s.conversation_name WHERE"
)
_TRANSCRIPT: Final = (
    "SELECT f.updated_at AS at, f.claude_session_id AS id, NULL AS name, f.cwd AS cwd,"  # noqa: S608  constants
    " f.title AS title, '[]' AS directories, 0 AS archived, NULL AS real_cwd FROM acp_found_transcripts f"
    f" WHERE f.listed = 1 AND NOT {OF_OURS} AND NOT {OF_DELETED}"
)
_OTHER: Final = (
    "SELECT c.name, c.session_id, c.cwd, c.created_at, (SELECT MAX(f.updated_at)"  # noqa: S608  constants
    " FROM acp_found_transcripts f WHERE f.claude_session_id = c.session_id)"
    f" FROM {{table}} WHERE {{names}} AND {CONTINUED} AND NOT {HAS_SESSION}"
)
# Names of ACP clients' conversations, of which there are as many as sessions, are a range of the key.
_OTHERS: Final = " UNION ALL ".join(
    _OTHER.format(table=table, names=f"c.name {names}")
    for table, names in (
        ("conversations c", f"< '{conversations.OWN}-'"),
        ("conversations c", f">= '{conversations.OWN}.'"),
        ("json_each(?) own JOIN conversations c", "= own.value"),
    )
)


class _Select(NamedTuple):
    """A statement, its parameters, where its key is, and the directory that a client's must be.
    `ours`: it may be another path to that, or NULL, which is whatever directory a client names first.
    """

    select: str
    parameters: tuple[Any, ...]
    table: str
    key: str
    cwd: str
    ours: bool = True


async def listed(database: Database, query: ListQuery, unopened: Unopened) -> list[ListedSession]:
    """The first sessions after the place, of ours, of other programs and of Claude's transcripts."""
    return await database.read_with(partial(_page, query, unopened))


def _page(query: ListQuery, unopened: Unopened, read: Rows) -> list[ListedSession]:
    others, theirs = _others(query, unopened, read)
    rows: list[tuple[int, str, Any]] = [
        (_place(row[0]), row[1], row)
        for sql, parameters in _statements(query, query.limit + len(theirs))
        for row in read(sql, parameters)
        if row[2] is not None or row[1] not in theirs
    ]
    rows += ((one.updated_at, one.session_id, one) for one in others)
    rows.sort(key=itemgetter(0, 1), reverse=True)
    return [
        one if isinstance(one, ListedSession) else _listed(at, one, query)
        for at, _, one in rows[: query.limit]
    ]


def _listed(at: int, row: tuple[Any, ...], query: ListQuery) -> ListedSession:
    _, session_id, name, cwd, title, directories, archived, real_cwd = row
    return ListedSession(
        session_id,
        name if name is None else readable.name(name),
        _directory(readable.text(cwd), real_cwd, query),
        at,
        readable.text(title),
        readable.texts(directories),
        bool(archived),
    )


def _directory(cwd: str | None, real_cwd: str | None, query: ListQuery) -> str | None:
    """What a list shows as the directory: of a session that has none yet, it is the one asked for,
    in which the client can open it.
    """
    known = query.cwds is None or cwd in query.cwds or real_cwd in query.cwds
    return cwd if known or query.cwds is None else query.cwds[0]


def _statements(query: ListQuery, limit: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """One for each kind and directory, with its parameters."""
    for part in _parts(query):
        at = f"({part.table}.updated_at, {part.table}.{part.key})"
        order = f" ORDER BY {part.table}.updated_at DESC, {part.table}.{part.key} DESC LIMIT ?"
        after: tuple[Any, ...] = query.after or ()
        place = f" AND {at} < (?, ?)" if after else ""
        if query.cwds is None:
            yield f"{part.select}{place}{order}", (*part.parameters, *after, limit)
            continue
        for cwd in query.cwds:
            sql = f"{part.select} AND {part.cwd} = ?{place}{order}"
            yield sql, (*part.parameters, cwd, *after, limit)
        if not part.ours:
            continue
        sql = f"{part.select} AND {part.cwd} IS NULL{place}{order}"
        yield sql, (*part.parameters, *after, limit)
        elsewhere = f"{part.cwd} NOT IN {places(query.cwds)}"  # else it was among those
        for cwd in query.cwds:
            sql = f"{part.select} AND s.real_cwd = ? AND {elsewhere}{place}{order}"
            yield sql, (*part.parameters, cwd, *query.cwds, *after, limit)


def _parts(query: ListQuery) -> Iterator[_Select]:
    shown, channels = of_channels("s.conversation_name", query.hidden)
    key = ("s", "acp_session_id")
    if query.archived is not Archived.ONLY:
        yield _Select(f"{_SESSION}{_PROMPTED} NULL{shown}", channels, *key, "s.cwd")
        unprompted = f"{_VISIBLE} NULL AND s.archived_at IS NULL AND {CONTINUED}{shown}"
        yield _Select(f"{_UNPROMPTED}{unprompted}", channels, *key, CWD)
        if query.transcripts:
            yield _Select(_TRANSCRIPT, (), "f", "claude_session_id", "f.cwd", ours=False)
    if query.archived is not Archived.EXCLUDE:
        yield _Select(f"{_SESSION}{_PROMPTED} NOT NULL{shown}", channels, *key, "s.cwd")


def _others(
    query: ListQuery, unopened: Unopened, read: Rows
) -> tuple[list[ListedSession], set[str]]:
    """Conversations that have no session yet, as far as they belong to the page, and the Claude
    sessions of all of them. They are in every directory.
    """
    if query.archived is Archived.ONLY:
        return [], set()
    rows = read(_OTHERS, (json.dumps(sorted(unopened.names(read))),))
    placed = [
        (_place(at) if at else _time(created), name, cwd)
        for name, _, cwd, created, at in rows
        if conversations.channel(name) not in query.hidden
    ]
    if (after := query.after) is not None:
        placed = [
            one
            for one in placed
            if one[0] < after[0] or (one[0] == after[0] and conversations.id_of(one[1]) < after[1])
        ]
    if len(placed) > query.limit:  # an id takes long to make
        least = heapq.nlargest(query.limit, (at for at, *_ in placed))[-1]
        placed = [one for one in placed if one[0] >= least]
    found = [
        ListedSession(
            conversations.id_of(name),
            name,
            readable.text(cwd) if query.cwds is None else query.cwds[0],
            at,
            conversations.title(name),
        )
        for at, name, cwd in placed
    ]
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
