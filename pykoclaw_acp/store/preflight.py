"""Checks before anything is changed: is the database intact, and is it ours to change?"""

from __future__ import annotations

import os
import shlex
from contextlib import closing
from pathlib import Path

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import DatabaseUnusable, Exhausted, StartupError
from pykoclaw_acp.store import inspection, migrate
from pykoclaw_acp.store.connection import BUSY_TIMEOUT
from pykoclaw_acp.store.sqlite import result_code, sqlite3
from pykoclaw_acp.system import shortage

FULL_CHECK_LIMIT = 32 * 1024 * 1024
"""Bytes up to which every page is checked (about 20 ms); larger files have only their schema checked."""

ATTEMPTS = 5
"""Attempts on a file that another process changes meanwhile."""


def verify(path: Path, migrations: list[migrate.Migration], *, adopt: bool = False) -> None:
    """Raises DatabaseUnusable if the file is damaged, newer than this program, or cannot be
    migrated.

    Changes no byte and leaves no file. A missing or empty file is a new database. `adopt`: as
    `inspection.inspect`.
    """
    path = path.resolve()  # beside which SQLite keeps its files
    if _size(path) == 0:
        if _size(_beside(path, "-wal")) > 0:
            raise damaged(path, "it is empty or missing, but its write-ahead log is there")
        return
    for attempt in range(1, ATTEMPTS + 1):
        before = _fingerprint(path)
        try:
            with closing(_connect(path)) as connection:
                _check(connection, path)
                inspection.inspect(connection, migrations, path, adopt=adopt)
            return
        except sqlite3.Error as error:
            if result_code(error) == sqlite3.SQLITE_READONLY:
                return  # a writer was killed: opening the file for writing rolls its transaction back
            failure = unusable(path, error)
            if result_code(error) == sqlite3.SQLITE_BUSY:
                failure.__cause__ = error  # which is no fault of the file's
        except DatabaseUnusable as error:
            failure = error
        if attempt == ATTEMPTS or _fingerprint(path) == before:
            raise failure


def unusable(path: Path, error: sqlite3.Error) -> StartupError:
    """The start-up error for an error of SQLite's."""
    if result_code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return damaged(path, str(error))
    if (found := _shortage(path, error)) is not None:
        return Exhausted(*found)
    return DatabaseUnusable(
        f"The database {path} cannot be used: {error}. Check that you may read and write the file and its directory, "
        "that the disk is not full, and that no other program keeps it locked."
    )


def _shortage(path: Path, error: sqlite3.Error) -> tuple[ErrorKind, str] | None:
    """Why a file cannot be opened, which SQLite does not say."""
    if result_code(error) == sqlite3.SQLITE_NOMEM:
        return shortage.MEMORY
    if result_code(error) == sqlite3.SQLITE_CANTOPEN:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as found:
            return shortage.of(found)
    return None


def damaged(path: Path, reason: str, kept: str = "It was not touched.") -> DatabaseUnusable:
    """The start-up error for a damaged file."""
    return DatabaseUnusable(f"The database {path} is damaged: {reason}. {kept} {advice(path)}")


def advice(path: Path) -> str:
    """What to do with a damaged file, as sentences."""
    recovered = shlex.quote(f"{path}.recovered")
    log = _beside(path, "-wal")
    of_another = (
        f"If it was put there in the place of another one, {log} and {path.name}-shm may belong to that one: move "
        "them away and try again. Otherwise restore"
        if _size(path) and _size(log)
        else "Restore"
    )
    return (
        f"{of_another} a backup of it, or save what can be read with "
        f"`sqlite3 {shlex.quote(str(path))} .recover | sqlite3 {recovered}` and put that in its place."
    )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if _size(path) <= FULL_CHECK_LIMIT:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise damaged(path, " ".join(verdict.split()))


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that writes neither the file nor others beside it."""
    if _beside(path, "-shm").exists():
        options = "mode=ro&readonly_shm=1"
    elif _beside(path, "-wal").exists() or _beside(path, "-journal").exists():
        options = "mode=ro"
    else:
        # Nobody has a transaction open, and mode=ro alone would leave an empty -wal and -shm beside
        # a WAL file.
        options = "mode=ro&immutable=1"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
    )


def _fingerprint(path: Path) -> tuple[object, ...]:
    """A fingerprint that changes when another process opens or changes the file."""
    status = os.stat(path)
    return (
        status.st_size,
        status.st_mtime_ns,
        *(_beside(path, suffix).exists() for suffix in ("-wal", "-shm", "-journal")),
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
