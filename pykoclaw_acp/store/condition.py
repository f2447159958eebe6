"""The store's condition: whether the database can be written, and if not, why and since when."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreUnavailable, StoreUncertain
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.store.sqlite import result_code, sqlite3
from pykoclaw_acp.system import shortage

_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_BLOCKED: Final = {
    sqlite3.SQLITE_FULL: "The disk is full, or over its quota.",
    sqlite3.SQLITE_READONLY: "The database is read-only.",
    sqlite3.SQLITE_IOERR: "The disk reports an error.",
    sqlite3.SQLITE_CANTOPEN: "A file of the database cannot be opened.",
    sqlite3.SQLITE_PERM: "Access to the database is denied.",
    sqlite3.SQLITE_NOMEM: "There is not enough memory.",
}
_DAMAGED: Final = {
    sqlite3.SQLITE_CORRUPT: "The database is damaged.",
    sqlite3.SQLITE_NOTADB: "The file is not a database any more.",
}
_ADVICE: Final = (
    "End the daemon with `pykoclaw-acp stop`; then restore a backup of pykoclaw.db, or save what can be read with"
    " `sqlite3 pykoclaw.db .recover | sqlite3 pykoclaw.db.recovered` and put that in its place."
)

log: Final = structlog.get_logger()


class KeptOrNot(Exception):
    """Whether a transaction was kept is not known."""


class FileGone(Exception):
    """The database's path does not lead to the file that is open; the message names both."""


def trouble(error: BaseException) -> tuple[DatabaseState, str] | None:
    """The condition that an error reveals, with a sentence for people; None: the unit itself is at
    fault.
    """
    if isinstance(error, FileGone):
        return DatabaseState.GONE, str(error)
    if isinstance(error, OSError):
        return DatabaseState.BLOCKED, f"The database's files cannot be looked at. ({error})"
    if not isinstance(error, sqlite3.Error):
        return None
    code = result_code(error)
    if code in _LOCKED:
        return DatabaseState.LOCKED, "Another program keeps the database locked."
    if code in _DAMAGED:
        return DatabaseState.DAMAGED, f"{_DAMAGED[code]} (SQLite: {error}) {_ADVICE}"
    if code in _BLOCKED:
        return DatabaseState.BLOCKED, " ".join(
            [f"{_BLOCKED[code]} (SQLite: {error})", *limits(error)]
        )
    return None


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite has met a damaged part of the file, which others may not need."""
    return isinstance(error, sqlite3.Error) and result_code(error) == sqlite3.SQLITE_CORRUPT


def meets_all(error: BaseException) -> bool:
    """Whether every unit would meet the error now: another program's lock, or a lost file."""
    found = trouble(error)
    return found is not None and found[0] in (DatabaseState.LOCKED, DatabaseState.GONE)


def limits(error: sqlite3.Error) -> list[str]:
    """What this process may not do that may be behind the error, as sentences."""
    if result_code(error) != sqlite3.SQLITE_IOERR:
        return []
    return [said] if (said := shortage.of_file_size()) is not None else []


class StoreDamaged(StoreUnavailable):
    """A request needs a part of the database that is damaged; others may not."""

    what = "The data that this request needs can be neither read nor written."
    kept = "The request was not carried out, and nothing of it was kept."
    retryable = False


class StoreSuspect(StoreUnavailable):
    """Another request has met a damaged part of the database, which this one may not need."""

    kept = (
        "The request was not carried out, and nothing of it was kept. Send it again in a moment: it may"
        " not need what is damaged."
    )


def unavailable(state: DatabaseState, reason: str) -> StoreUnavailable:
    """The error for a request that the condition lets fail."""
    kind = StoreDamaged if state == DatabaseState.DAMAGED else StoreUnavailable
    return kind(state, reason)


class StoreCondition:
    """The condition of one database: writable until a write fails, and again once a probe
    succeeds.
    """

    def __init__(self) -> None:
        self.state = DatabaseState.WRITABLE
        self.reason = ""
        self.since = time.monotonic()
        """From when on the state holds; seconds, of the monotonic clock."""
        self.troubles = 0
        """How many times it has become unwritable."""
        self._proven = False  # damage that a probe has met, as every unit would
        self._writable = asyncio.Event()
        self._writable.set()
        self._trouble = asyncio.Event()

    @property
    def is_writable(self) -> bool:
        """Whether commits are attempted."""
        return self.state == DatabaseState.WRITABLE

    @property
    def is_suspect(self) -> bool:
        """Whether a unit has met damage that no probe has: others may be committed."""
        return self.state == DatabaseState.DAMAGED and not self._proven

    def require(self) -> None:
        """Raises StoreUnavailable unless the database can be written."""
        if not self.is_writable:
            raise self.refusal()

    def refusal(self, error: Exception | None = None) -> StoreUnavailable:
        """The error for a request that cannot be carried out now; `error` is that of its commit."""
        if isinstance(error, KeptOrNot):
            return StoreUncertain(self.state, self.reason)
        if error is None and self.is_suspect:
            return StoreSuspect(self.state, self.reason)
        return unavailable(self.state, self.reason)

    def failed(self, state: DatabaseState, reason: str, *, probed: bool = False) -> None:
        """A write has failed, and not because of its unit; `probed`: that of a probe."""
        if state != self.state:
            log.error(
                "The database cannot be written",
                action="store_unavailable",
                state=state,
                reason=reason,
            )
            self.since = time.monotonic()
        self._proven = state == DatabaseState.DAMAGED and (probed or self._proven)
        self.troubles += self.is_writable
        self.state, self.reason = state, reason
        self._writable.clear()
        self._trouble.set()

    def recovered(self) -> None:
        """A probe has succeeded."""
        if self.is_writable:
            return
        seconds = round(time.monotonic() - self.since, 1)
        log.warning(
            "The database can be written again",
            action="store_available",
            was=self.state,
            seconds=seconds,
        )
        self.state, self.reason, self.since = DatabaseState.WRITABLE, "", time.monotonic()
        self._proven = False
        self._trouble.clear()
        self._writable.set()

    async def writable(self) -> None:
        """Wait until the database can be written."""
        await self._writable.wait()

    def give_up(self) -> None:
        """Release those who wait: the database is closed."""
        self._writable.set()

    async def in_trouble(self) -> None:
        """Wait until the database cannot be written."""
        await self._trouble.wait()
