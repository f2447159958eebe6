"""A readable copy of a database that SQLite cannot open in place, as on a read-only or
full disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.store.batch import PROBE_TIMEOUT_MS
from pykoclaw_acp.store.sqlite import sqlite3

FORMER: Final = "history-copy"  # as versions before have called it, also in the state directory
SPARE: Final = 64 * 1024 * 1024  # bytes that stay free beside the copy

log: Final = structlog.get_logger()


def is_worth_it(path: Path) -> bool:
    """Whether the database exists and is not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def name_of(path: Path) -> str:
    """The name of the copy's directory, which that of another database does not have."""
    return f"history-copy-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]}"


def make(path: Path, directories: Sequence[Path]) -> Path | None:
    """Copy the file and its WAL (0600, in a directory of mode 0700); None if there is no room
    anywhere.

    The caller holds the data directory's lock, and other programs cannot write either.
    """
    try:
        sources = [name for name in (path, path.with_name(f"{path.name}-wal")) if name.exists()]
        size = sum(name.stat().st_size for name in sources)
    except OSError as error:
        log.info("What is to be copied cannot be looked at", action="copy_failed", error=str(error))
        return None
    for directory in directories:
        place = directory / name_of(path)
        try:
            if not directory.is_dir() or shutil.disk_usage(directory).free < size + SPARE:
                continue
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(mode=0o700)
            place.chmod(0o700)  # whatever the umask is
            for name in sources:
                _copy(name, place / name.name)
        except OSError as error:
            log.info(
                "A copy cannot be made here",
                action="copy_failed",
                directory=str(directory),
                error=str(error),
            )
            shutil.rmtree(place, ignore_errors=True)
            continue
        log.warning("History is read from a copy", action="history_copied", copy=str(place))
        return place / path.name
    return None


def remove(copied: Path) -> None:
    """Delete the copy."""
    shutil.rmtree(copied.parent, ignore_errors=True)


def remove_left(path: Path, directories: Sequence[Path]) -> None:
    """Delete copies that killed servers have left."""
    for directory in directories:
        shutil.rmtree(directory / name_of(path), ignore_errors=True)


def is_accessible(path: Path) -> bool:
    """Whether the system grants writing; opens no file, because closing it would drop SQLite's
    locks.
    """
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def probe(path: Path) -> Exception | None:
    """Try to write the database at `path`, which may have no table of ours yet; returns the error, if
    there is one.
    """
    try:
        with closing(
            sqlite3.connect(path, timeout=PROBE_TIMEOUT_MS / 1000, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN IMMEDIATE")
            # Writes a page, also with the number that is there.
            ((number,),) = connection.execute("PRAGMA user_version").fetchall()
            connection.execute(f"PRAGMA user_version={number}")
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        return error
    return None


def _copy(source: Path, target: Path) -> None:
    """Copy a file to a new one, which only we can read."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as written, source.open("rb") as read:
        shutil.copyfileobj(read, written)
