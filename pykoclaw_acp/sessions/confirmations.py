"""Up to which event each client has confirmed a session's updates: where a plain `session/resume` goes on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog

from pykoclaw_acp.sessions.ports import Journal

DELAY: Final = 0.1  # s in which confirmations gather

log: Final = structlog.get_logger()


class Confirmations:
    """Written behind: what a crash takes of the last moment is shown once more, never lost."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._unwritten: dict[tuple[str, str], int] = {}
        self._written: dict[tuple[str, str], int] = {}  # while they are
        self._writing: asyncio.Task[None] | None = None

    def note(self, session_id: str, client: str, seq: int) -> None:
        """The client was shown everything up to `seq`."""
        self._unwritten[session_id, client] = max(seq, self._unwritten.get((session_id, client), seq))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    async def of(self, session_id: str, client: str) -> int | None:
        """The place of a client of this name; None if it was never shown anything."""
        known = [places.get((session_id, client)) for places in (self._unwritten, self._written)]
        known.append(await self._journal.confirmed(session_id, client))
        return max((seq for seq in known if seq is not None), default=None)

    async def flush(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writing
        await self._write()

    async def _write_soon(self) -> None:
        try:
            while self._unwritten:
                await asyncio.sleep(DELAY)
                await self._write()
        finally:
            self._writing = None

    async def _write(self) -> None:
        self._written, self._unwritten = self._unwritten, {}
        if self._written:
            try:
                await self._journal.confirm([(*place, seq) for place, seq in self._written.items()])
            except Exception:
                log.exception("Confirmations could not be written", action="confirmations_lost")
            finally:
                self._written = {}
