"""Opening the database: connections, journal mode, migrations; or a copy of a file that cannot be
written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pykoclaw_acp.errors import DatabaseBusy, DatabaseUnusable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.store import clocks, history_copy, inspection, journal_mode, migrate, preflight
from pykoclaw_acp.store.batch import write_nothing_new
from pykoclaw_acp.store.checkpoints import Checkpoints
from pykoclaw_acp.store.condition import trouble
from pykoclaw_acp.store.connection import LOCK_WAIT, Connection
from pykoclaw_acp.store.journal_mode import JournalMode
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.sqlite import ENGINE, sqlite3
from pykoclaw_acp.system.clock import Clock

READERS: Final = 2


@dataclass(frozen=True, slots=True)
class OpenedDatabase:
    """An open database. `trouble`: why it cannot be written, if it cannot.

    `copy`: the file that is read instead, if the database itself cannot be opened. `accessible`:
    whether the system would have let this process write when the files were opened.
    """

    writer: Connection
    readers: list[Connection]
    mode: JournalMode
    clock: Clock
    file: OpenFile
    checkpoints: Checkpoints | None = None
    copy: Path | None = None
    accessible: bool = True
    trouble: tuple[DatabaseState, str] | None = None


async def open_files(
    path: Path, spare: Sequence[Path] = (), link: Path | None = None
) -> OpenedDatabase:
    """Open the file, to which `link` may lead, or a copy in the first directory of `spare` with room;
    raises as `Database.open`.
    """
    migrations = migrate.load()
    try:
        await asyncio.to_thread(preflight.verify, path, migrations)
        with suppress(FileExistsError):
            _create(path)
        return await _open(path, link, migrations)
    except OSError as error:
        raise DatabaseUnusable(f"The database {path} cannot be used: {error.strerror}.") from error
    except (sqlite3.Error, DatabaseUnusable) as error:
        cause, found = _cause(error)
        if found is not None and found[0] == DatabaseState.LOCKED:
            raise DatabaseBusy(
                f"Another program keeps the database {path} to itself. Nothing was lost. pykoclaw-acp starts "
                "as soon as that program releases the database; `pykoclaw-acp doctor` names the program."
            ) from cause
        # A copy of a damaged file would be as damaged.
        if found is None or found[0] == DatabaseState.DAMAGED or not history_copy.is_worth_it(path):
            raise _unusable(path, error) from cause
    refused = f"The database {path} cannot be written, and"
    kept = f"{found[1]} Nothing was lost. Make room, or make the file and its directory writable."
    copied = await asyncio.to_thread(history_copy.make, path, spare)
    if copied is None:
        raise DatabaseUnusable(f"{refused} there is no room for a copy to read from. {kept}")
    try:
        return await _open_copy(path, copied, migrations, found)
    except (OSError, sqlite3.Error, DatabaseUnusable) as error:
        cause, found = _cause(error)
        if found is None or found[0] == DatabaseState.DAMAGED:
            raise _unusable(path, error) from cause
        said = cause.strerror if isinstance(cause, OSError) else cause
        raise DatabaseUnusable(
            f"{refused} the copy {copied} of it cannot be used: {said}. {kept}"
        ) from cause


def _cause(error: Exception) -> tuple[BaseException | None, tuple[DatabaseState, str] | None]:
    """What an error while the database is opened came of, and the condition that this reveals."""
    cause = error.__cause__ if isinstance(error, DatabaseUnusable) else error
    return cause, None if cause is None else trouble(cause)


def _unusable(path: Path, error: Exception) -> Exception:
    """The start-up error for a file that neither can be used nor is worth a copy."""
    _, found = _cause(error)
    if found is not None and found[0] == DatabaseState.DAMAGED:
        if isinstance(error, DatabaseUnusable):  # which says what of it failed
            return DatabaseUnusable(f"{error} The file is damaged. {preflight.advice(path)}")
        return preflight.damaged(path, str(error), "What was stored is kept as it is.")
    return preflight.unusable(path, error) if isinstance(error, sqlite3.Error) else error


def _create(path: Path) -> None:
    """An empty file, 0600 whatever the umask is; raises FileExistsError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)
    os.close(descriptor)


async def _open(
    path: Path, link: Path | None, migrations: list[migrate.Migration]
) -> OpenedDatabase:
    accessible = history_copy.is_accessible(path)
    async with AsyncExitStack() as stack:
        writer, readers, mode, clock = await _connect(stack, path, migrations, path)
        refused = await writer.run(_try_to_write)
        checkpoints = await Checkpoints.open(writer, path, mode)
        file = OpenFile(path, link)
        stack.pop_all()
    return OpenedDatabase(
        writer, readers, mode, clock, file, checkpoints, accessible=accessible, trouble=refused
    )


async def _open_copy(
    path: Path, copied: Path, migrations: list[migrate.Migration], found: tuple[DatabaseState, str]
) -> OpenedDatabase:
    async with AsyncExitStack() as stack:
        stack.callback(history_copy.remove, copied)
        writer, readers, mode, clock = await _connect(stack, copied, migrations, path)
        file = OpenFile(copied)
        stack.pop_all()
    return OpenedDatabase(writer, readers, mode, clock, file, copy=copied, trouble=found)


async def _connect(
    stack: AsyncExitStack, path: Path, migrations: list[migrate.Migration], named: Path
) -> tuple[Connection, list[Connection], JournalMode, Clock]:
    """The writer, with which the database is brought up to date, the readers, and what
    was found; errors name the file `named`.
    """

    async def connection() -> Connection:
        opened = await Connection.open(path)
        stack.push_async_callback(opened.close)
        return opened

    writer = await connection()
    mode = await writer.run(partial(_prepare, migrations=migrations, named=named))
    clock = await writer.run(clocks.go_on)
    readers = [await connection() for _ in range(READERS)]
    for reader in readers:
        await reader.run(partial(_prepare_reader, mode=mode))
    return writer, readers, mode, clock


def _try_to_write(connection: sqlite3.Connection) -> tuple[DatabaseState, str] | None:
    """The condition that keeps the database from being written, if one does."""
    connection.execute(f"PRAGMA busy_timeout={round(LOCK_WAIT * 1000)}")
    try:
        write_nothing_new(connection)
    except sqlite3.Error as error:
        if (found := trouble(error)) is None:
            raise
        return found
    return None


def _prepare(
    connection: sqlite3.Connection, migrations: list[migrate.Migration], named: Path
) -> JournalMode:
    inspection.inspect(connection, migrations, named)  # a rollback may have hidden it
    mode = journal_mode.settle(connection, ENGINE)
    mode.configure(connection)
    migrate.apply(connection, migrations, named)
    return mode


def _prepare_reader(connection: sqlite3.Connection, mode: JournalMode) -> None:
    mode.configure(connection)
    connection.execute(f"PRAGMA busy_timeout={round(LOCK_WAIT * 1000)}")
    connection.execute("PRAGMA query_only=ON")
