"""Deletion of sessions and logs: hidden by one short transaction, and deleted in pieces afterwards.

A session whose `deleted_at` is 0 is being made: a fork (`store/forking.py`), or of an export
(`store/journal/restoring.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

from pykoclaw_acp import crash_points
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.store import blobs, found_transcripts, notices
from pykoclaw_acp.store.condition import StoreDamaged
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.logs import DROP
from pykoclaw_acp.store.pieces import PIECE_SIZE, Pieces
from pykoclaw_acp.store.sessions import now_ms

_LEFTOVERS: Final = "SELECT log_key FROM acp_log_leftovers"
_FORGET: Final = (
    "DELETE FROM acp_log_leftovers WHERE log_key = ?"
    " AND NOT EXISTS (SELECT 1 FROM acp_log WHERE log_key = ?)"
)


class _Owner(NamedTuple):
    """A column that says to whom rows belong, and SQL: whether they may be deleted."""

    column: str
    allowed: str


class _OwnedTable(NamedTuple):
    """A table, the key of an owner's rows, and what makes a row large."""

    name: str
    key: str
    large: str


_LOG: Final = _Owner("log_key", "EXISTS (SELECT 1 FROM acp_log_leftovers WHERE log_key = ?)")
# Somebody may use a pruned session again while its old turns are deleted.
_SESSION: Final = _Owner(
    "acp_session_id",
    "EXISTS (SELECT 1 FROM acp_sessions WHERE acp_session_id = ?"
    " AND (deleted_at > 0 OR pruned_at IS NOT NULL))",
)
_OF_LOG: Final = (
    _OwnedTable("acp_log", "seq", "payload"),
    _OwnedTable("acp_merging_runs", "last_seq", "acp_session_id"),
    _OwnedTable("acp_merging_turns", "turn_id", "turn_id"),
)
_BLOBS: Final = _OwnedTable("acp_blobs", "sha256", "sha256")
_OF_PRUNED: Final = (
    _BLOBS,
    _OwnedTable("acp_turns", "turn_id", "prompt"),
    _OwnedTable("acp_permissions", "permission_id", "request"),
)
_OF_DELETED: Final = (
    _OwnedTable("acp_events", "seq", "payload"),
    *_OF_PRUNED,
    _OwnedTable("acp_merged_logs", "first_seq", "acp_session_id"),
    _OwnedTable("acp_notes", "note_id", "text"),
    _OwnedTable("acp_session_options", "acp_session_id", "options"),
    _OwnedTable("acp_surroundings", "acp_session_id", "variables"),
    _OwnedTable("acp_transcript_turns", "prompt_uuid", "prompt_uuid"),
    _OwnedTable("acp_transcripts", "claude_session_id", "path"),
    _OwnedTable("acp_limit_waits", "turn_id", "turn_id"),
    _OwnedTable("acp_rewinds", "request_key", "result"),
    _OwnedTable("acp_session_rules", "rule", "rule"),
    _OwnedTable("acp_forks", "acp_session_id", "upto"),
    _OwnedTable("acp_begun_transcripts", "claude_session_id", "claude_session_id"),
    _OwnedTable("acp_branches", "claude_session_id", "claude_session_id"),
)
# Claude sessions of the session: what is left of them makes none again.
_KEEP: Final = (
    "INSERT INTO acp_deleted_transcripts (claude_session_id, deleted_at)"
    " SELECT claude, ? FROM (SELECT acp_session_id AS claude FROM acp_sessions WHERE acp_session_id = ?"
    " UNION SELECT followed FROM acp_sessions WHERE acp_session_id = ?"
    " UNION SELECT claude_session_id FROM acp_transcripts WHERE acp_session_id = ?"
    " UNION SELECT claude_session_id FROM acp_begun_transcripts WHERE acp_session_id = ?"
    " UNION SELECT NULLIF(c.session_id, '') FROM acp_sessions s JOIN conversations c"
    " ON c.name = s.conversation_name WHERE s.acp_session_id = ?) AS known"
    " WHERE claude IS NOT NULL ON CONFLICT (claude_session_id) DO NOTHING"
)
_GIVE_UP: Final = (
    "UPDATE acp_sessions SET deleted_at = ? WHERE acp_session_id = ? AND deleted_at = 0"
)
_IS_HIDDEN: Final = "SELECT 1 FROM acp_sessions WHERE acp_session_id = ? AND deleted_at > 0"
_CURSORS: Final = (
    "DELETE FROM acp_cursors WHERE acp_session_id IN"
    " (SELECT acp_session_id FROM acp_sessions WHERE deleted_at > 0)"
)
_CURSORS_OF: Final = "DELETE FROM acp_cursors WHERE acp_session_id = ?"
_ALIASES: Final = "SELECT acp_session_id FROM acp_sessions WHERE alias_of = ?"


async def delete(
    database: Database,
    session_id: str,
    hidden: Callable[[], object] = lambda: None,
    transcripts: Collection[str] = (),
) -> None:
    """Delete a session: hidden by the first commit, after which `hidden` is called, its contents gone
    at the return. That waits until the database can be read and written; the first commit does not,
    which notes the `transcripts` of these Claude sessions as to be removed.

    The rows of its ids stay, without a title, because an id is never used again; its request key
    becomes free. So do the ids of its Claude sessions.
    """
    change = "UPDATE acp_sessions SET deleted_at = ?, title = NULL, request_key = NULL"
    at = now_ms()
    gone = Statement(f"{change} WHERE acp_session_id = ?", (at, session_id), rows=1)
    aliases = Statement(f"{change} WHERE alias_of = ?", (at, session_id))
    kept = Statement(_KEEP, (at, *[session_id] * 5))
    unremoved = found_transcripts.set_to_remove(transcripts)
    await database.commit(Unit(statements=(kept, gone, aliases, *unremoved), durable=True))
    hidden()
    crash_points.reached("session_hidden")
    await _clear_in_time(database, session_id)


async def give_up(database: Database, session_id: str) -> None:
    """Delete a session that is being made, and never will be; no effect on any other. Waits until the
    database can be read and written.
    """
    given_up = Statement(_GIVE_UP, (now_ms(), session_id))
    await database.commit(Unit(statements=(given_up,)), patient=True)
    if await database.read(_IS_HIDDEN, (session_id,)):
        await _clear_in_time(database, session_id)


async def _clear_in_time(database: Database, session_id: str) -> None:
    await until_done(
        partial(_clear_hidden, database, session_id),
        "What a deleted session has left cannot be read now",
        after=StoreUnavailable,
        final=(StoreDamaged,),
    )


async def _clear_hidden(database: Database, session_id: str) -> None:
    """Delete the contents of a session that was hidden; whatever was done of that before."""
    await _drop_log(database, session_id)  # a commit first: it waits while the database is locked
    aliases = [one for (one,) in await database.read(_ALIASES, (session_id,))]
    for one in aliases:
        await _drop_log(database, one)
    await _clear_leftovers(database)
    for one in (session_id, *aliases):
        for table in _OF_DELETED:
            await _clear_session(database, table, one)
        await notices.forget_session(database, one)
        await database.commit(Unit(statements=(Statement(_CURSORS_OF, (one,)),)), patient=True)


async def purge(database: Database) -> None:
    """Delete the contents of all deleted and pruned sessions, after interrupted deletions. Waits until
    the database can be written. Takes the longer, the more sessions there are.
    """
    logged = (
        "SELECT s.acp_session_id FROM acp_sessions s"
        " WHERE s.deleted_at > 0 AND s.log_key IS NOT NULL"
    )
    for (session_id,) in await database.read(logged):
        await _drop_log(database, session_id)
    await _clear_leftovers(database)
    for table in _OF_DELETED:
        pruned = " OR s.pruned_at IS NOT NULL" if table in _OF_PRUNED else ""
        # CROSS JOIN fixes the order: sessions first, then their rows by key.
        hidden = await database.read(
            f"SELECT DISTINCT s.acp_session_id FROM acp_sessions s CROSS JOIN {table.name} e"  # noqa: S608  constants
            f" ON e.acp_session_id = s.acp_session_id WHERE s.deleted_at > 0{pruned}"
        )
        for (session_id,) in hidden:
            await _clear_session(database, table, session_id)
    await notices.forget_deleted(database)
    await database.commit(Unit(statements=(Statement(_CURSORS),)), patient=True)


async def empty(database: Database, session_id: str) -> None:
    """Delete what a session that was just pruned has left."""
    await _clear_leftovers(database)
    for table in _OF_PRUNED:
        await _clear_session(database, table, session_id)


async def _drop_log(database: Database, session_id: str) -> None:
    drop = tuple(Statement(sql, (session_id,)) for sql in DROP)
    await database.commit(Unit(statements=drop, renumbers=True), patient=True)


async def _clear_session(database: Database, table: _OwnedTable, session_id: str) -> None:
    if table is _BLOBS:
        await blobs.remove_unused(database, session_id)
    await _clear(database, table, _SESSION, session_id)


async def _clear_leftovers(database: Database) -> None:
    for (log_key,) in await database.read(_LEFTOVERS):
        for table in _OF_LOG:
            await _clear(database, table, _LOG, log_key)
        forget = Statement(_FORGET, (log_key, log_key))
        await database.commit(Unit(statements=(forget,)), patient=True)


async def _clear(database: Database, table: _OwnedTable, owner: _Owner, value: object) -> None:
    """Delete an owner's rows, in pieces, as long as that is allowed."""
    mine = f"FROM {table.name} WHERE {owner.column} = ? AND {owner.allowed} LIMIT ?"
    lengths = f"SELECT LENGTH({table.large}) {mine}"
    delete = (
        f"DELETE FROM {table.name} WHERE {owner.column} = ?"  # noqa: S608  constants
        f" AND {table.key} IN (SELECT {table.key} {mine})"
    )
    pieces = Pieces()
    while found := await database.read(lengths, (value, value, pieces.rows)):
        size = rows = 0
        for (length,) in found:
            if rows and size + length > PIECE_SIZE:
                break
            size, rows = size + length, rows + 1
        piece = Statement(delete, (value, value, value, rows))
        await pieces.commit(database, Unit(statements=(piece,)), patient=True)
