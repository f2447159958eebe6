"""Databases for tests that do not examine how one is made: new ones, and those of an old version."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.model.events import Event, Text, UserMessage, encode
from pykoclaw_acp.store import migrate
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.opening import OpenedDatabase, open_files
from pykoclaw_acp.store.sqlite import sqlite3
from tests.double import files

OLD_LOGS: Final = 5  # the newest migration of versions that kept each event as a row of acp_events
T = TypeVar("T")
_FILES: Final[WeakKeyDictionary[Database, OpenedDatabase]] = WeakKeyDictionary()


def place(path: Path) -> Path:
    """Put a new database at `path` unless there is one, with all migrations. Each of them is a
    commit that waits for the disk, so they are applied once in a process.
    """
    if not path.exists():
        path.write_bytes(_migrated())
        path.chmod(0o600)
    return path


def with_old_log(data: Path, session: str, cwd: str, words: Sequence[str]) -> Path:
    """pykoclaw's first tables, and a session of ours whose turn said these words, each a row of the
    old form; its path.
    """
    path = files.first_schema(data)
    said: list[Event] = [
        UserMessage("turn", {"type": "text", "text": "What was said?"}),
        *(Text("m-1", word) for word in words),
    ]
    rows = [
        (session, seq, event.__struct_config__.tag, encode(event))
        for seq, event in enumerate(said, 1)
    ]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        older = [one for one in migrate.load() if one.version <= OLD_LOGS]
        migrate.apply(connection, older, path)
        connection.execute("BEGIN")
        connection.execute(
            "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at, last_seq,"
            " prompted_at) VALUES (?, ?, ?, 1, 1, ?, 1)",
            (session, f"acp-{session[:8]}", cwd, len(said)),
        )
        connection.execute(
            "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, stop_reason, created_at, ended_at)"
            " VALUES ('turn', ?, 'client', '[]', 'done', 'end_turn', 1, 1)",
            (session,),
        )
        connection.executemany(
            "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, created_at)"
            " VALUES (?, ?, 'turn', ?, ?, 1)",
            rows,
        )
        connection.execute("COMMIT")
    return path


async def open_new(path: Path) -> Database:
    """Open a database at `path`, a new one if there is none."""
    return await opened(place(path))


async def opened(path: Path, spare: Sequence[Path] = ()) -> Database:
    """As `Database.open`, and the connections can be asked for."""
    real = await asyncio.to_thread(path.resolve)
    files = await open_files(real, spare, path)
    made = Database(real, files, path.parent)
    _FILES[made] = files
    return made


def files_of(database: Database) -> OpenedDatabase:
    """The connections and files of a database that was opened here."""
    return _FILES[database]


async def on_writer(database: Database, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do something with the connection that writes, which nothing of the program offers."""
    return await files_of(database).writer.run(work)


async def close_files(database: Database) -> None:
    """What the end of the process does with an abandoned database that was opened here."""
    files = files_of(database)
    if files.checkpoints is not None:
        await files.checkpoints.close()
        files.checkpoints.file.close()
    for connection in (*files.readers, files.writer):
        await connection.close()
    files.file.close()


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DATABASE
        thread = threading.Thread(target=lambda: asyncio.run(_make(path)))  # of a loop of its own
        thread.start()
        thread.join()
        if set(os.listdir(folder)) != {DATABASE}:
            raise RuntimeError(f"A closed database left {os.listdir(folder)}.")
        return path.read_bytes()


async def _make(path: Path) -> None:
    await (await Database.open(path)).close()
