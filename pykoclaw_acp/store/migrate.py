"""The migrations runner: `migrations/NNNN_name.sql`, applied in order, each in a transaction of its
own, each once.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pykoclaw_acp.errors import DatabaseUnusable
from pykoclaw_acp.store import shared_columns
from pykoclaw_acp.store.condition import limits
from pykoclaw_acp.store.sqlite import sqlite3

_FILE_NAME = re.compile(r"(\d{4})_\w+\.sql")
_TABLE = re.compile(
    r"^CREATE TABLE (?:IF NOT EXISTS )?(?P<created>\w+)|^DROP TABLE (?P<gone>\w+)"
    r"|^ALTER TABLE (?P<renamed>\w+) RENAME TO (?P<to>\w+)",
    re.MULTILINE,
)
_IN_WHEEL = Path(__file__).parent / "migrations"
_IN_CHECKOUT = Path(__file__).parents[2] / "migrations"

_CREATE_RECORD = """
CREATE TABLE IF NOT EXISTS acp_migrations (
    version BIGINT PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at BIGINT NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of the migrations folder."""

    version: int
    name: str
    """The file's name."""
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load(folder: Path | None = None) -> list[Migration]:
    """The migrations in `folder`, in order; by default the wheel's or, in an editable install, the
    checkout's.
    """
    if folder is None:
        folder = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT
    return [
        Migration(int(match[1]), file.name, file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir())
        if (match := _FILE_NAME.fullmatch(file.name))
    ]


def tables(migrations: list[Migration]) -> set[str]:
    """Names of the tables that these migrations leave."""
    found: set[str] = set()
    for change in _TABLE.finditer("\n".join(one.sql for one in migrations)):
        name, renamed = change["created"], change["renamed"]
        found.discard(change["gone"] or renamed or "")
        found |= {one for one in (name, change["to"]) if one}
    return found


def pending(
    connection: sqlite3.Connection, migrations: list[Migration], path: Path
) -> list[Migration]:
    """The migrations that are not applied yet; reads only.

    Raises DatabaseUnusable if the database has one that we do not know, or one whose file was
    changed since.
    """
    if not connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'acp_migrations'"
    ).fetchone():
        return migrations
    known = {migration.version: migration for migration in migrations}
    applied = set()
    for version, name, sha256 in connection.execute(
        "SELECT version, name, sha256 FROM acp_migrations ORDER BY version"
    ):
        if version not in known:
            raise DatabaseUnusable(
                f"The database {path} was made by a newer version of pykoclaw-acp (it has {name}). It was not touched. "
                "Install that version or a later one, or set PYKOCLAW_DATA to another directory."
            )
        if known[version].sha256 != sha256:
            raise DatabaseUnusable(
                f"The migration {known[version].name} is not the one that was applied to the database {path}. It was "
                "not touched. Install an unmodified pykoclaw-acp; a change to the schema needs a new migration."
            )
        applied.add(version)
    return [migration for migration in migrations if migration.version not in applied]


def apply(connection: sqlite3.Connection, migrations: list[Migration], path: Path) -> None:
    """Apply the missing migrations; several processes may do so at once.

    `connection` is in autocommit mode (`isolation_level=None`). Raises DatabaseUnusable as
    `pending` does, and if a migration fails; what a failed one did is rolled back.
    """
    missing = pending(connection, migrations, path)
    newest = max((one for one in migrations if one not in missing), key=_version, default=None)
    for migration in missing:
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Whoever held the lock before us may have applied it.
            if migration in pending(connection, migrations, path):
                _apply_one(connection, migration)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            said = f"The migration {migration.name} failed on the database {path}: {error}. Nothing of it was kept."
            if newest is not None:
                said += (
                    f" Versions of pykoclaw-acp that have {newest.name} can go on with the database, older ones refuse"
                    " it."
                )
            raise DatabaseUnusable(" ".join([said, *limits(error)])) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        newest = migration
    try:
        shared_columns.complete(connection)
    except sqlite3.Error as error:
        raise DatabaseUnusable(
            f"Columns that pykoclaw adds to its tables could not be added to the database {path}: {error}."
        ) from error


def _version(migration: Migration) -> int:
    return migration.version


def _apply_one(connection: sqlite3.Connection, migration: Migration) -> None:
    """Carry out a migration, and record that it was."""
    for statement in split(migration.sql):
        connection.execute(statement)
    connection.execute(_CREATE_RECORD)
    connection.execute(
        "INSERT INTO acp_migrations (version, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
        (migration.version, migration.name, migration.sha256, time.time_ns() // 1_000_000),
    )


def split(script: str) -> Iterator[str]:
    """The statements of a script; semicolons in strings, comments and triggers do not end one.

    (`executescript` would commit the transaction that a migration runs in.)
    """
    start = 0
    for semicolon in re.finditer(";", script):
        statement = script[start : semicolon.end()]
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            start = semicolon.end()
    if rest := script[start:].strip():
        yield rest
