"""Whether a database is pykoclaw's and can be migrated; decided in memory, before the file is
changed.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import DatabaseUnusable
from pykoclaw_acp.store import migrate
from pykoclaw_acp.store.sqlite import sqlite3

RECORD: Final = "acp_migrations"
PYKOCLAWS: Final = {
    "conversations": {"name", "session_id", "cwd", "created_at"},
    "scheduled_tasks": {"id", "conversation", "prompt"},
    "task_run_logs": {"id", "task_id"},
    "delivery_queue": {"id", "conversation", "message"},
}
"""Pykoclaw's tables, with the columns that all of its versions have; plugins add tables of any name."""
_MAPPING: Final = "acp_sessions"  # of pykoclaw's own ACP agent: two columns
_SHOWN: Final = 5  # tables that a message names
_SCHEMA: Final = (
    "SELECT sql FROM sqlite_master WHERE type IN ('table', 'view', 'index') AND sql IS NOT NULL"
    " AND name NOT LIKE 'sqlite_%' ORDER BY type = 'index', rowid"
)
_UPSERT: Final = (
    "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES ('', NULL, NULL, '')"
    " ON CONFLICT (name) DO UPDATE SET session_id = excluded.session_id"
)


class DatabaseForeign(DatabaseUnusable):
    """The database is another program's; it was not touched."""

    kind = ErrorKind.DATABASE_FOREIGN

    def __init__(self, path: object, tables: list[str], count: int) -> None:
        named = ", ".join(tables) + (", …" if count > len(tables) else "")
        super().__init__(
            f"The database {path} has tables of another program ({named}), and none of pykoclaw's. It was not touched. "
            "Set PYKOCLAW_DATA to another directory, or run `pykoclaw-acp adopt` to keep our tables beside those."
        )


class DatabaseIncompatible(DatabaseUnusable):
    """The database has tables that look like pykoclaw's or ours and are not; it was not touched."""

    kind = ErrorKind.DATABASE_INCOMPATIBLE

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(
            f"The database {path} cannot be brought up to date: {reason}. It was not touched. Set PYKOCLAW_DATA to "
            "another directory, or restore the database that pykoclaw or pykoclaw-acp has made."
        )


def inspect(
    connection: sqlite3.Connection,
    migrations: list[migrate.Migration],
    path: Path,
    *,
    adopt: bool = False,
) -> None:
    """Check that the database can be migrated; reads only. Raises DatabaseForeign or
    DatabaseIncompatible, and DatabaseUnusable as `migrate.pending` does.

    `connection` is in autocommit mode. `adopt`: tables of another program may stay beside ours.
    """
    # One transaction: another process may migrate the database meanwhile.
    connection.execute("BEGIN")
    try:
        _inspect(connection, migrations, path, adopt=adopt)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _inspect(
    connection: sqlite3.Connection,
    migrations: list[migrate.Migration],
    path: Path,
    *,
    adopt: bool,
) -> None:
    missing = migrate.pending(connection, migrations, path)
    tables = _tables(connection)
    if not tables:
        return
    if not missing:
        _require_whole(connection, tables, migrations, path)
        return
    if RECORD not in tables and not adopt and not _is_pykoclaws(connection, tables):
        raise DatabaseForeign(path, sorted(tables)[:_SHOWN], len(tables))
    if RECORD not in tables and _MAPPING in tables and len(_columns(connection, _MAPPING)) != 2:
        raise DatabaseIncompatible(path, f"its table {_MAPPING} is not the one that pykoclaw makes")
    schema = connection.execute(_SCHEMA).fetchall()
    mapped = []
    if RECORD not in tables and _MAPPING in tables:
        mapped = connection.execute(
            f"SELECT acp_session_id, conversation_name FROM {_MAPPING}"  # noqa: S608  constant
        ).fetchall()
    try:
        _rehearse([sql for (sql,) in schema], mapped, missing)
    except sqlite3.Error as error:
        raise DatabaseIncompatible(path, str(error)) from error


def _require_whole(
    connection: sqlite3.Connection,
    tables: set[str],
    migrations: list[migrate.Migration],
    path: Path,
) -> None:
    """Raises DatabaseIncompatible if a table is gone, or one of pykoclaw's has lost a column, since
    all migrations were made.
    """
    if gone := sorted(migrate.tables(migrations) - tables):
        raise DatabaseIncompatible(path, f"its table {gone[0]} is gone")
    for table, columns in PYKOCLAWS.items():
        if lost := sorted(columns - _columns(connection, table)):
            raise DatabaseIncompatible(path, f"its table {table} has no column {lost[0]}")


def _tables(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    return {name for (name,) in rows if not name.startswith("sqlite_")}


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {
        name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    }


def _is_pykoclaws(connection: sqlite3.Connection, tables: set[str]) -> bool:
    """Whether pykoclaw made it: its first table exists, and none of its tables has
    another shape.
    """
    known = tables & PYKOCLAWS.keys()
    if any(not PYKOCLAWS[table] <= _columns(connection, table) for table in known):
        return False
    return "conversations" in tables or tables <= {*PYKOCLAWS, _MAPPING}


def _rehearse(
    schema: list[str], mapped: list[tuple[object, ...]], missing: list[migrate.Migration]
) -> None:
    """Try the missing migrations and everyday writes on a copy of the schema, with the rows that
    they move.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        for sql in schema:
            with suppress(sqlite3.Error):  # a virtual table of a module that is not here
                copy.execute(sql)
        if mapped:
            copy.executemany(
                f"INSERT INTO {_MAPPING} (acp_session_id, conversation_name) VALUES (?, ?)",  # noqa: S608  constant
                mapped,
            )
        for migration in missing:
            for statement in migrate.split(migration.sql):
                copy.execute(statement)
        copy.execute(_UPSERT)
        copy.execute(_UPSERT)
