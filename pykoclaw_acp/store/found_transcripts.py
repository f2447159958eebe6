"""`acp_found_transcripts` and what belongs to it: Claude's transcripts, of whatever program."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from typing import Final

from pykoclaw_acp.model.found_transcripts import FoundTranscript
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import session_environment
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import CONTINUED, HAS_SESSION, OF_DELETED, OF_OURS

_ONE: Final = "(SELECT ? AS claude_session_id) AS f"
_NEWER_COPY: Final = (
    "EXISTS (SELECT 1 FROM acp_found_transcripts other WHERE other.claude_session_id ="
    " f.claude_session_id AND other.path <> ? AND other.updated_at > ? AND other.listed = 1)"
)
_KEEP: Final = (
    "INSERT INTO acp_found_transcripts (path, folder, claude_session_id, size, mtime, cwd, title,"  # noqa: S608
    " updated_at, listed) SELECT ?, ?, f.claude_session_id, ?, ?, ?, ?, ?,"
    f" CASE WHEN ? = 1 AND NOT {OF_OURS} AND NOT {OF_DELETED} AND NOT {_NEWER_COPY} THEN 1 ELSE 0 END"
    f" FROM {_ONE} WHERE 1 = 1 ON CONFLICT (path) DO UPDATE SET folder = excluded.folder,"
    " size = excluded.size, mtime = excluded.mtime, cwd = excluded.cwd, title = excluded.title,"
    " updated_at = excluded.updated_at, listed = excluded.listed"
)
_GROWN: Final = (  # by whom does not matter: a turn of ours ends after its messages
    "UPDATE acp_sessions SET updated_at = ? WHERE {} = ? AND updated_at < ?"
    " AND prompted_at IS NOT NULL AND pruned_at IS NULL AND deleted_at IS NULL AND alias_of IS NULL"
)
_ADOPT: Final = (
    "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, additional_directories, mode, title,"  # noqa: S608
    " client, created_at, updated_at, prompted_at, used_clock)"
    f" SELECT f.claude_session_id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM {_ONE}"
    f" WHERE NOT {OF_OURS} AND NOT {OF_DELETED}"
)


async def folders(database: Database) -> dict[str, str]:
    """Folders that were looked at, each with its digest."""
    return dict(await database.read("SELECT folder, digest FROM acp_transcript_folders"))


async def known(database: Database, folder: str) -> dict[str, str]:
    """Size and time of a folder's transcripts, by name."""
    rows = await database.read(
        "SELECT path, size, mtime FROM acp_found_transcripts WHERE folder = ?", (folder,)
    )
    return {os.path.basename(path): f"{size} {mtime}" for path, size, mtime in rows}


def keep(folder: str, found: FoundTranscript) -> Iterator[Statement]:
    """A transcript as it is now. Of copies with one id, the newest counts. Words are kept only of what is
    listed: they could be those of a deleted session.
    """
    one, at, path = found.claude_session_id, found.updated_at, found.path
    listed = int(found.is_session)
    yield Statement(
        _KEEP,
        (
            path,
            folder,
            found.size,
            str(found.mtime),
            found.cwd,
            found.title,
            at,
            listed,
            path,
            at,
            one,
        ),
    )
    yield Statement(
        "UPDATE acp_found_transcripts SET listed = 0, title = NULL"
        " WHERE claude_session_id = ? AND path <> ? AND updated_at <= ? AND listed = 1",
        (one, path, at),
    )
    yield Statement(
        "UPDATE acp_found_transcripts SET title = NULL WHERE path = ? AND listed = 0", (path,)
    )
    for column in ("acp_session_id", "followed"):
        yield Statement(_GROWN.format(column), (at, one, at))


def forget(paths: Collection[str]) -> Iterator[Statement]:
    """These transcripts are gone."""
    for path in paths:
        yield from _look_again("path", path)
        yield Statement("DELETE FROM acp_found_transcripts WHERE path = ?", (path,))


def _look_again(column: str, gone: str) -> Iterator[Statement]:
    """Copies elsewhere of what is gone count as changed: one of them is the newest now."""
    copies = (
        f"{column} <> ? AND listed = 0 AND claude_session_id IN"  # noqa: S608  constants
        f" (SELECT f.claude_session_id FROM acp_found_transcripts f WHERE f.{column} = ?)"
    )
    yield Statement(
        "UPDATE acp_transcript_folders SET digest = '' WHERE folder IN"  # noqa: S608
        f" (SELECT folder FROM acp_found_transcripts WHERE {copies})",
        (gone, gone),
    )
    yield Statement(
        f"UPDATE acp_found_transcripts SET mtime = '' WHERE {copies}",  # noqa: S608
        (gone, gone),
    )


def set_digest(folder: str, digest: str) -> Statement:
    """All of the folder was looked at."""
    return Statement(
        "INSERT INTO acp_transcript_folders (folder, digest) VALUES (?, ?)"
        " ON CONFLICT (folder) DO UPDATE SET digest = excluded.digest",
        (folder, digest),
    )


def forget_folder(folder: str) -> tuple[Statement, ...]:
    """The folder is gone."""
    return (
        *_look_again("folder", folder),
        Statement("DELETE FROM acp_found_transcripts WHERE folder = ?", (folder,)),
        Statement("DELETE FROM acp_transcript_folders WHERE folder = ?", (folder,)),
    )


async def conversation_following(database: Database, claude_session_id: str) -> str | None:
    """A conversation without a session whose row names this Claude session. Reads all rows."""
    rows = await database.read(
        f"SELECT c.name FROM conversations c WHERE c.session_id = ? AND {CONTINUED}"  # noqa: S608  constants
        f" AND NOT {HAS_SESSION} AND NOT EXISTS (SELECT 1 FROM acp_deleted_transcripts gone"
        " WHERE gone.claude_session_id = c.session_id) LIMIT 1",
        (claude_session_id,),
    )
    return str(rows[0][0]) if rows else None


def adopt(record: SessionRecord, updated_at: int, clock: int) -> tuple[Statement, ...]:
    """Insert a session, and its conversation, for the transcript that has its id."""
    session = (
        record.conversation_name,
        record.cwd,
        json.dumps(record.additional_directories),
        record.mode,
        record.title,
        record.client,
        updated_at,
        updated_at,
        updated_at,
        max(clock, 1),  # 0 would say that no client has opened it
        record.session_id,
    )
    conversation = (record.conversation_name, record.session_id, record.cwd, now_text())
    return (
        Statement(_ADOPT, session, rows=1),
        Statement(
            "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, ?, ?, ?)",
            conversation,
        ),
        *session_environment.begin(record.session_id, record.environment),
        unlist(record.session_id),
    )


def unlist(claude_session_id: str) -> Statement:
    """The transcript is no session of its own any more."""
    return Statement(
        "UPDATE acp_found_transcripts SET listed = 0, title = NULL WHERE claude_session_id = ?",
        (claude_session_id,),
    )


def bury(claude_session_id: str, *, remove: bool) -> tuple[Statement, ...]:
    """The transcript makes no session any more, if it has none; `remove`: it is to be removed."""
    return (
        Statement(
            "INSERT INTO acp_deleted_transcripts (claude_session_id, deleted_at)"  # noqa: S608  constants
            f" SELECT f.claude_session_id, ? FROM {_ONE} WHERE NOT {OF_OURS}"
            " ON CONFLICT (claude_session_id) DO NOTHING",
            (now_ms(), claude_session_id),
        ),
        _mark(claude_session_id, to_remove=remove),
        unlist(claude_session_id),
    )


def set_to_remove(claude_session_ids: Collection[str]) -> tuple[Statement, ...]:
    """The transcripts of these deleted sessions are to be removed."""
    at = now_ms()
    return tuple(
        Statement(
            "INSERT INTO acp_deleted_transcripts (claude_session_id, deleted_at, to_remove) VALUES (?, ?, 1)"
            " ON CONFLICT (claude_session_id) DO UPDATE SET to_remove = 1",
            (one, at),
        )
        for one in claude_session_ids
    )


def set_removed(claude_session_ids: Collection[str]) -> tuple[Statement, ...]:
    """The transcripts of these deleted sessions are removed."""
    return tuple(_mark(one, to_remove=False) for one in claude_session_ids)


def _mark(claude_session_id: str, *, to_remove: bool) -> Statement:
    return Statement(
        "UPDATE acp_deleted_transcripts SET to_remove = ? WHERE claude_session_id = ?",
        (int(to_remove), claude_session_id),
    )


async def to_remove(database: Database) -> set[str]:
    """Claude sessions whose transcripts are to be removed."""
    rows = await database.read(
        "SELECT claude_session_id FROM acp_deleted_transcripts WHERE to_remove = 1"
    )
    return {claude for (claude,) in rows}


async def begun(database: Database, session_id: str) -> set[str]:
    """Claude sessions that workers of this session have begun under other ids than its own."""
    rows = await database.read(
        "SELECT claude_session_id FROM acp_begun_transcripts WHERE acp_session_id = ?",
        (session_id,),
    )
    return {claude for (claude,) in rows}
