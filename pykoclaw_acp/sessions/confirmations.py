"""Confirmed positions of clients, from which a plain `session/resume` continues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import structlog

from pykoclaw_acp.model.cursors import Claimant, Cursor, CursorChange, Reader
from pykoclaw_acp.sessions import writes
from pykoclaw_acp.sessions.ports import CursorStore

DELAY: Final = 0.1  # s between a confirmation and its write
PAUSE: Final = 5.0  # s until a failed write is retried

log: Final = structlog.get_logger()

_Key = tuple[str, str, str, str]


def unknown(client_process: str) -> bool | None:  # noqa: ARG001
    """Liveness of every client process: not known."""
    return None


@dataclass(frozen=True, slots=True)
class _Change:
    """A pending change of a cursor, None: removal. Unless `whole`, only its position is known,
    which only grows.
    """

    cursor: Cursor | None
    whole: bool


@dataclass(eq=False, slots=True)
class _Look:
    """A read of a session's cursors in progress; `stale`: some were committed meanwhile."""

    at: tuple[str, str]
    stale: bool = True


class Confirmations:
    """Positions of clients, written behind: after a crash the last moment is shown again, never
    skipped.

    `alive` returns whether a client's process lives, None if unknown: then it counts as living
    while it has a subscription.
    """

    def __init__(self, journal: CursorStore, alive: Callable[[str], bool | None] = unknown) -> None:
        self.alive = alive
        self._journal = journal
        self._unwritten: dict[_Key, _Change] = {}
        self._written: dict[_Key, _Change] = {}  # while they are
        self._looks: set[_Look] = set()
        self._batches = 0  # number of batches started
        self._kept = 0  # newest batch that is committed, with all before it
        self._hurry = asyncio.Event()
        self._news = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def note(self, session_id: str, reader: Reader, seq: int) -> None:
        """Note that the client was shown everything up to `seq`."""
        key = (session_id, reader.client, reader.client_process, reader.front)
        before = self._unwritten.get(key) or self._written.get(key)
        cursor = Cursor(reader.client_process, reader.front, seq)
        if before is None:
            self._change(key, _Change(cursor, whole=False))
        elif before.cursor is None or seq > before.cursor.seq:
            self._change(key, _Change(cursor, whole=before.whole))

    async def claim(
        self,
        session_id: str,
        end: int,
        reader: Reader,
        others: Collection[Reader],
        upto: int | None = None,
    ) -> int | None:
        """Position at which this reader, which opens the session, continues; None for an unknown
        client.

        `end`: of the log. `others`: readers with a subscription now. `upto`: the reader names its
        position, and only what it leaves to others is settled. The caller notes the position next,
        without awaiting: both are written together.
        """
        cursors = await self.cursors(session_id, reader.client)
        here = {one.client_process for one in others}
        claimant = Claimant(
            reader,
            fronts={one.front for one in others if one.client_process == reader.client_process},
            lives=lambda client_process: self.lives(client_process, here),
            now=self._journal.clock.now(),
            upto=upto,
        )
        # The database was restored from a backup
        beyond = [one for one in cursors if one.seq > end]
        claim = claimant.claim([one for one in cursors if one.seq <= end])
        claim.gone += beyond
        for one in claim.gone:
            self._change(
                (session_id, reader.client, one.client_process, one.front),
                _Change(None, whole=True),
            )
        for one in claim.changed:
            self._change(
                (session_id, reader.client, one.client_process, one.front), _Change(one, whole=True)
            )
        return claim.start

    def lives(self, client_process: str, here: Collection[str]) -> bool:
        """Whether the process lives, or must be taken to: `here` are those with a subscription."""
        known = self.alive(client_process)
        return client_process in here if known is None else known

    async def predecessors(self, session_id: str, reader: Reader) -> set[str]:
        """The reader's process, and those that it goes on for in the session."""
        cursors = await self.cursors(session_id, reader.client)
        found = {reader.client_process}
        while more := {one.client_process for one in cursors if one.used_by in found} - found:
            found |= more
        return found

    async def knows(self, session_id: str, reader: Reader) -> bool:
        """Whether the reader's process has a cursor of its own in the session."""
        cursors = await self.cursors(session_id, reader.client)
        return any(one.client_process == reader.client_process for one in cursors)

    async def written(self, limit: float) -> None:
        """Wait until everything noted so far is committed, for at most `limit` s, and not while the
        database cannot be written.
        """
        if not writes.is_writable(self._journal):
            return
        batch = self._batches + bool(self._unwritten)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self._kept < batch:
                    self._hurry.set()
                    await self._news.wait()

    async def flush(self) -> None:
        """Write everything pending."""
        if self._writing is not None:
            self._writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writing
        await self._write()

    def _change(self, key: _Key, change: _Change) -> None:
        self._unwritten[key] = change
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(
                self._write_soon(), name="write-confirmations"
            )

    async def cursors(self, session_id: str, client: str) -> list[Cursor]:
        """Cursors of this client name, with pending changes applied."""
        look = _Look((session_id, client))
        self._looks.add(look)
        try:
            while look.stale:  # others commit cursors of other sessions all the time
                look.stale = False
                found = {
                    (one.client_process, one.front): one
                    for one in await self._journal.cursors(session_id, client)
                }
        finally:
            self._looks.discard(look)
        for changes in (self._written, self._unwritten):
            for (session, name, client_process, front), change in changes.items():
                if (session, name) != (session_id, client):
                    continue
                known = found.pop((client_process, front), None)
                if change.cursor is not None:
                    keeps = (
                        known is not None and not change.whole and change.cursor.seq <= known.seq
                    )
                    found[client_process, front] = (
                        known if known is not None and keeps else change.cursor
                    )
        return list(found.values())

    async def _write_soon(self) -> None:
        try:
            pause = DELAY
            while self._unwritten:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._hurry.wait()
                self._hurry.clear()
                pause = DELAY if await self._write() else PAUSE
        finally:
            self._writing = None

    async def _write(self) -> bool:
        """Write all pending changes in one transaction; returns whether it succeeded."""
        self._written, self._unwritten = self._unwritten, {}
        if not self._written:
            return True
        self._batches += 1
        batch = self._batches
        changes = [
            CursorChange(session_id, client, client_process, front, change.cursor, change.whole)
            for (session_id, client, client_process, front), change in self._written.items()
        ]
        try:
            await self._journal.change_cursors(changes)
        except BaseException as error:
            self._unwritten = self._written | self._unwritten  # writing twice is harmless
            if not isinstance(error, Exception):
                raise
            log.exception("Confirmations could not be written yet", action="confirmations_waiting")
            return False
        finally:
            touched = {key[:2] for key in self._written}
            for look in self._looks:
                look.stale = look.stale or look.at in touched
            self._written = {}
        self._kept = batch
        self._news.set()
        self._news = asyncio.Event()
        return True
