"""Checkpoints of the write-ahead log (WAL).

A fixed engine checkpoints by itself as it commits; this module truncates the WAL when the database
is quiet. With an engine that has the WAL-reset bug only this module checkpoints, about a thousand
pages at a time, while a second connection, the guard, holds the write lock so that no program
writes. https://sqlite.org/wal.html#walresetbug
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.store.condition import FileGone
from pykoclaw_acp.store.connection import Connection
from pykoclaw_acp.store.journal_mode import JournalMode
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import Unit

QUIET: Final = 2.0  # s without a commit, after which the WAL is checkpointed and truncated
STEP: Final = 1000  # pages per checkpoint while commits go on: some 10 ms
# s at most between attempts, while a reader of another program prevents truncation
RETRY: Final = 30.0
BUSY_MS: Final = 50  # wait for readers on truncation; commits wait as long
_PAGE: Final = 4096  # bytes
_PAGES_OF_UNIT: Final = 3  # changed by a small unit, estimated

log: Final = structlog.get_logger()


class Checkpoints:
    """Checkpoints one database, in the writer's thread, between transactions."""

    def __init__(self, writer: Connection, path: Path, settled: JournalMode) -> None:
        """Use `open`."""
        self._writer = writer
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self.file = OpenFile(path)
        self._own = settled.own_checkpoints
        self._stopped = False
        self._guard: sqlite3.Connection | None = None
        self._pages = 0  # written since the last checkpoint, estimated
        self._much = asyncio.Event()
        self._last = 0.0  # time of the last commit (s, of the loop)
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, writer: Connection, path: Path, settled: JournalMode) -> Checkpoints:
        """Start, with the WAL that an earlier process left. Raises sqlite3.Error if the guard
        cannot be opened.
        """
        made = cls(writer, path, settled)
        if made._own:
            await writer.run(made._open_guard)
        made.written(())
        return made

    def written(self, units: Sequence[Unit]) -> None:
        """Note a committed transaction."""
        if self._stopped:
            return
        self._last = asyncio.get_running_loop().time()
        if self._own:
            self._pages += sum(_pages(unit) for unit in units)
            if self._pages >= STEP:
                self._much.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="checkpoints")

    async def stop(self) -> None:
        """Stop checkpointing."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Close the guard; call `stop` first."""
        await self._writer.run(self._close_guard)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause = QUIET
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._much.wait()
            if self._much.is_set():
                self._pages = 0
                self._much.clear()
                await self._try(self._bring_in)
            elif (rest := self._last + QUIET - loop.time()) > 0:
                pause = rest
            elif not await self._try(self._empty):
                pause = min(max(QUIET, 2 * pause), RETRY)
            elif self._last + QUIET <= loop.time():
                break
        self._task = None

    async def _try(self, step: Callable[[sqlite3.Connection], bool]) -> bool:
        try:
            return await self._writer.run(step)
        except (sqlite3.Error, FileGone, OSError) as error:
            log.warning(
                "The write-ahead log could not be checkpointed",
                action="checkpoint_failed",
                error=str(error),
            )
            return False

    # --- in the writer's thread

    def _bring_in(self, connection: sqlite3.Connection) -> bool:
        """Checkpoint while nobody writes; False if frames are left that a reader needs."""
        self.file.check()  # a database that was moved away is used without its WAL
        if self._guard is None:
            return True
        try:
            self._guard.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False  # another program writes
        try:
            busy, frames, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            self._guard.execute("ROLLBACK")
        return bool(not busy and frames == done)

    def _empty(self, connection: sqlite3.Connection) -> bool:
        """Checkpoint and truncate the WAL; False if a reader needs it."""
        if not self._size() or not self._bring_in(connection):
            return not self._size()
        (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        try:
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout={before}")
        return not busy

    def _size(self) -> int:
        try:
            return self._wal.stat().st_size
        except OSError:
            return 0

    def _open_guard(self, connection: sqlite3.Connection) -> None:  # noqa: ARG002  it belongs to this thread
        self._guard = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        self._guard.execute("PRAGMA wal_autocheckpoint=0")

    def _close_guard(self, connection: sqlite3.Connection) -> None:  # noqa: ARG002
        if self._guard is not None:
            self._guard.close()
            self._guard = None


def _pages(unit: Unit) -> int:
    long = sum(len(event.payload) for event in unit.events)
    long += sum(
        len(value)
        for statement in unit.statements
        for value in statement.parameters
        if isinstance(value, str)
    )
    return _PAGES_OF_UNIT + long // _PAGE
