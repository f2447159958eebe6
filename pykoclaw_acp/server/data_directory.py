"""The data directory of a server that starts: its lock, its database, and the directories beside it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import (
    ConfigurationError,
    DatabaseBusy,
    StoreUnavailable,
)
from pykoclaw_acp.link import records
from pykoclaw_acp.link.places import DATABASE, Places, secure_directory
from pykoclaw_acp.pool.unattended import unattended
from pykoclaw_acp.store import history_copy, privacy
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.lock import DataLock
from pykoclaw_acp.system import trusted_path
from pykoclaw_acp.system.full_disk import TAKES_NO_FILE

log: Final = structlog.get_logger()


def take(
    settings: Settings, places: Places, undo: contextlib.AsyncExitStack, *, resident: bool
) -> tuple[DataLock, list[Path]]:
    """Take the lock of the data directory; returns it, and directories for a copy of the database.

    `undo` releases the lock. Raises StartupError.
    """
    records.require_database(places, unattended(places).holds)
    group = privacy.group_id(settings.group)
    lock = DataLock.acquire(settings.data, places.socket if resident else None, group)
    undo.callback(lock.release)
    if group is not None:
        privacy.require_shared(settings.data, group, str(settings.group))
    directory = _runtime_directory(places)
    return lock, [
        directory,
        Path(places.socket).parent,
        *warn_of_weak_places(settings.data, places, group),
    ]


async def open_database(
    settings: Settings, spare: list[Path], undo: contextlib.AsyncExitStack
) -> Database:
    """Open the database, and deny others access to its files; `undo` closes it."""
    group = privacy.group_id(settings.group)
    privacy.close(settings.data / DATABASE, group)
    database = await Database.open(settings.data / DATABASE, spare)
    undo.push_async_callback(database.close)
    privacy.close(settings.data / DATABASE, group)  # what was made just now
    return database


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise DatabaseBusy for what a start could not read of the database, or write to it."""
    try:
        yield
    except StoreUnavailable as error:
        raise DatabaseBusy(
            f"pykoclaw-acp cannot start with {path}: {error.reason} What was stored is kept as it is."
            " The next start tries again; if it fails, too, `pykoclaw-acp doctor` looks at the database."
        ) from error


def _runtime_directory(places: Places) -> Path:
    """Create the directory of the daemon's socket and logs; 0700."""
    try:
        secure_directory(places.directory)
    except ConfigurationError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError):
            raise ConfigurationError(
                f"{error} PYKOCLAW_STATE can be set to another directory."
            ) from error
        if cause.errno not in TAKES_NO_FILE:
            raise trusted_path.unusable(places.directory, cause, "PYKOCLAW_STATE") from cause
        log.warning("The state directory cannot be made", action="state_failed", error=str(error))
    return Path(places.directory)


def warn_of_weak_places(data: Path, places: Places, group: int | None) -> list[Path]:
    """Warn of weak directories; returns the temporary directory if it can be trusted."""
    used = (data, Path(places.directory), Path(places.socket).parent)
    temporary = _temporary_directory()
    copy = history_copy.name_of(data / DATABASE)
    copies = [] if temporary is None else trusted_path.examine(str(temporary / copy))
    others = [one for path in used for one in trusted_path.examine(str(path), group)]
    for one in {one.words: one for one in (*others, *copies)}.values():
        log.warning(one.words, action="directory_weak", directory=one.directory, advice=one.remedy)
    return [] if temporary is None or any(one.certain for one in copies) else [temporary]


def _temporary_directory() -> Path | None:
    """The temporary directory; None if no file can be made in any."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return None
