"""SQLite's journal mode, chosen by engine: WAL only where that is safe."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from pykoclaw_acp.store import engine
from pykoclaw_acp.store.connection import BUSY_TIMEOUT
from pykoclaw_acp.store.sqlite import sqlite3

SIZE_LIMIT = 64 * 1024 * 1024
"""Bytes that an unused journal may keep on disk."""

CLOSING_BUSY_TIMEOUT_MS = 500
"""Lock timeout of the clean-up at the end; the next start does what is left."""


@dataclass(frozen=True, slots=True)
class JournalMode:
    """How connections to this file are configured."""

    mode: str
    """SQLite's name of it: `wal`, `delete`…"""
    own_checkpoints: bool
    """Whether `Checkpoints` alone checkpoints: with an engine that has the WAL-reset bug, also before
    another program sets a file in rollback mode to WAL.
    """

    @property
    def relaxed(self) -> bool:
        """Whether commits survive the death of the process without `synchronous=FULL`."""
        return self.mode == "wal"

    def configure(self, connection: sqlite3.Connection) -> None:
        """Set the pragmas that belong to a connection, not to the file."""
        connection.execute(f"PRAGMA journal_size_limit={SIZE_LIMIT}")
        connection.execute(f"PRAGMA synchronous={'NORMAL' if self.relaxed else 'FULL'}")
        if self.own_checkpoints:
            connection.execute("PRAGMA wal_autocheckpoint=0")

    def tidy(self, connection: sqlite3.Connection) -> None:
        """Clean up before the file is closed, as far as another program's lock and the disk allow."""
        connection.execute(f"PRAGMA busy_timeout={CLOSING_BUSY_TIMEOUT_MS}")
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA optimize")
        if self.own_checkpoints:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def settle(connection: sqlite3.Connection, used: engine.Engine) -> JournalMode:
    """Set the journal mode that is safe with this engine.

    That is WAL for a fixed engine. An affected one leaves the mode as it is: a new file is in
    rollback mode, and other programs may be using a WAL file.
    """
    mode = _mode(connection)
    if not used.affected and mode != "wal":
        mode = _change_to_wal(connection)
    return JournalMode(mode, own_checkpoints=used.affected)


def _mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def _change_to_wal(connection: sqlite3.Connection) -> str:
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError:
            # SQLite's busy timeout waits for readers here, but not for a writer or for another that
            # makes this change.
            if time.monotonic() > deadline:
                return _mode(connection)
            time.sleep(0.02)
