"""A store that fails when a test says so: SQLite's errors at any statement of the writer, and the
system's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pykoclaw_acp.store.sqlite import sqlite3

_WRITES: Final = (
    "BEGIN",
    "COMMIT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE",
    "ALTER",
    "DROP",
    "REPLACE",
)
_SPARED: Final = ("ROLLBACK", "PRAGMA")


@dataclass(frozen=True, slots=True)
class StoreError:
    """One of SQLite's errors; `rolls_back`: SQLite has ended the transaction when it is raised.

    `kept`: it comes from a COMMIT that is found in the file after a crash, as when the last fsync
    fails; until then nothing more can be written. `look`: it is none of SQLite's: the system
    refuses a look at the database's files. `reads`: queries meet it, and nothing that writes does.
    """

    name: str
    code: int
    message: str
    kind: type[sqlite3.DatabaseError] = sqlite3.OperationalError
    rolls_back: bool = False
    kept: bool = False
    look: bool = False
    reads: bool = False

    def __str__(self) -> str:
        return (
            f"{self.name}{' rolled back' if self.rolls_back else ''}{' kept' if self.kept else ''}"
            f"{' of a query' if self.reads else ''}"
        )

    def made(self) -> sqlite3.DatabaseError:
        """As SQLite raises it."""
        error = self.kind(self.message)
        error.sqlite_errorcode = self.code
        error.sqlite_errorname = f"SQLITE_{self.name}"
        return error


BUSY: Final = StoreError("BUSY", 5, "database is locked")
READONLY: Final = StoreError("READONLY", 8, "attempt to write a readonly database")
IOERR: Final = StoreError("IOERR", 10, "disk I/O error", rolls_back=True)
IOERR_OPEN: Final = StoreError("IOERR", 10, "disk I/O error")
CORRUPT: Final = StoreError(
    "CORRUPT", 11, "database disk image is malformed", kind=sqlite3.DatabaseError
)
FULL: Final = StoreError("FULL", 13, "database or disk is full", rolls_back=True)
FULL_OPEN: Final = StoreError("FULL", 13, "database or disk is full")
UNSURE: Final = StoreError("IOERR", 10, "disk I/O error", rolls_back=True, kept=True)

EIO: Final = StoreError("EIO", errno.EIO, os.strerror(errno.EIO), look=True)
# The file is not at its place.
GONE: Final = StoreError("GONE", errno.ENOENT, os.strerror(errno.ENOENT), look=True)

ERRORS: Final = (BUSY, FULL, IOERR, READONLY, CORRUPT)
UNREADABLE: Final = StoreError("IOERR", 10, "disk I/O error", reads=True)

VARIANTS: Final = (FULL_OPEN, IOERR_OPEN, EIO)  # of these


class Faults:
    """Which statement of the writer is the next to fail, and how; or which query of anybody."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.raised = 0
        self._error: StoreError | None = None
        self._after = 0
        self._left: int | None = 0

    def arm(self, error: StoreError, after: int = 0, times: int | None = None) -> None:
        """Let `after` statements pass, and fail from the next one on: so many times, or until
        `heal`.
        """
        self.watch()
        self._error, self._after, self._left = error, after, times

    def watch(self) -> None:
        """Fail no more, and count statements anew."""
        self.heal()
        self.statements = []
        self.raised = 0

    def heal(self) -> None:
        """It can be written again."""
        self._error = None

    @property
    def armed(self) -> bool:
        """An error is due, or has come and stays."""
        return self._error is not None

    def due(self, connection: sqlite3.Connection, sql: str) -> StoreError | None:
        """The error that this statement meets; called by the connection for each of its
        statements.
        """
        head = sql.lstrip()[:8].upper()
        error = self._error
        writes = connection.in_transaction or head.startswith(_WRITES)
        if head.startswith(_SPARED) or writes == (error is not None and error.reads):
            return None
        self.statements.append(sql)
        if error is None or error.look or len(self.statements) <= self._after:
            return None
        if error.kept:
            if self.raised:
                return IOERR_OPEN
            if not head.startswith("COMMIT"):
                return None
        # Once it has come it comes where it would: a lock at BEGIN, the others where something is
        # to be written.
        if self.raised and head.startswith("BEGIN") != (error.code == BUSY.code):
            return None
        self._came()
        return error

    def look(self) -> None:
        """The store looks at its files; raises OSError if that is to fail."""
        error = self._error
        if error is not None and error.look and len(self.statements) >= self._after:
            self._came()
            raise OSError(error.code, error.message)

    def _came(self) -> None:
        self.raised += 1
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._error = None


class Life:
    """One daemon's hold on the file: after `end` its connections do nothing any more, as those of a
    killed process.
    """

    def __init__(self, faults: Faults) -> None:
        self.over = False
        self._faults = faults

    def end(self) -> None:
        """The process is dead."""
        self.over = True

    def check(self, connection: sqlite3.Connection, sql: str) -> StoreError | None:
        """As `Faults.due`; of a dead process nothing reaches the file."""
        if self.over and not sql.lstrip().upper().startswith(_SPARED):
            raise sqlite3.OperationalError("this daemon is dead")
        return self._faults.due(connection, sql)


class FaultyConnection(sqlite3.Connection):
    """A connection that asks before each statement whether it is to fail."""

    life: Life

    def execute(self, sql: str, *parameters: Any) -> Any:
        if sql.startswith("PRAGMA synchronous="):
            sql = "PRAGMA synchronous=OFF"  # nobody pulls the plug, and each fsync takes longer than all the rest
        return self._guarded(sql, partial(super().execute, sql, *parameters))

    def executemany(self, sql: str, *parameters: Any) -> Any:
        return self._guarded(sql, partial(super().executemany, sql, *parameters))

    def _guarded(self, sql: str, run: Callable[[], Any]) -> Any:
        error = self.life.check(self, sql)
        if error is None:
            return run()
        if error.kept:
            run()
        elif error.rolls_back and self.in_transaction:
            super().execute("ROLLBACK")
        raise error.made()


class FaultyLooks:
    """Stands in the place of `os` where the store looks at its files."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._descriptors: set[int] = set()

    def open(self, *given: Any) -> int:
        made = os.open(*given)
        self._descriptors.add(made)
        return made

    def close(self, descriptor: int) -> None:
        self._descriptors.discard(descriptor)
        os.close(descriptor)

    def close_all(self) -> None:
        """As the end of the process does."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def stat(self, *given: Any) -> os.stat_result:
        self._faults.look()
        return os.stat(*given)

    def pread(self, *given: Any) -> bytes:
        self._faults.look()
        return os.pread(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class FaultyModule:
    """Stands in the place of `sqlite3` where the store opens its connections, which belong to the
    `life` of then.
    """

    def __init__(self, life: Callable[[], Life]) -> None:
        self._life = life

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connect: Callable[..., FaultyConnection] = sqlite3.connect
        made = connect(*arguments, factory=FaultyConnection, check_same_thread=False, **options)
        made.life = self._life()
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)
