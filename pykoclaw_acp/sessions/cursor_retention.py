"""Retention of cursors: those of ended client processes are dropped after 30 days.

The days are counted by the data directory's clock, from when a daemon first saw that the process
had ended: a wrong wall clock drops nothing early, and days on which the machine is off do not
count.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.sessions.ports import CursorStore
from pykoclaw_acp.sessions.registry import Sessions

PAUSE: Final = 3600.0  # s
LIMIT: Final = 30 * 24 * 3600 * 1000  # ms

log: Final = structlog.get_logger()


class CursorAges:
    """Checks once an hour which client processes have ended."""

    def __init__(self, sessions: Sessions, journal: CursorStore) -> None:
        self._sessions = sessions
        self._journal = journal

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(PAUSE)
            try:
                await self.look()
            except StoreUnavailable:
                log.debug("Cursors are looked at later", action="cursors_later")
            except Exception:
                log.exception("Cursors could not be looked at", action="cursors_not_aged")

    async def look(self) -> None:
        """Record ended client processes, and drop expired cursors."""
        alive = self._sessions.confirmations.alive
        shown = {
            subscription.reader.client_process
            for session in self._sessions.live.values()
            for subscription in session.subscriptions
            if subscription.reader is not None
        }
        ended: list[str] = []
        living: list[str] = []
        for client_process in await self._journal.client_processes():
            known = alive(client_process)
            lives = client_process in shown if known is None else known
            (living if lives else ended).append(client_process)
        await self._journal.age_cursors(ended, living, self._journal.clock.now() - LIMIT)
