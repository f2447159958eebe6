"""Retention of sessions: unused ones are emptied and hidden after a while; their ids stay valid.

The time is measured by the data directory's clock, which is saved with each check. Sessions and
conversations that are idle also leave this process's memory.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.retries import done
from pykoclaw_acp.sessions.ports import SessionStore
from pykoclaw_acp.sessions.registry import Sessions

ROUNDS: Final = 4  # checks per retention period
LONGEST_PAUSE: Final = 600.0  # s
DORMANT: Final = 60.0  # s since a session was last accessed, until it leaves memory

log: Final = structlog.get_logger()


class Pruner:
    """Prunes sessions never prompted by a person, `after` (s) their last use; one with a client is
    in use.

    A conversation is never pruned. A pruned session can be loaded and resumed, empty, and is no
    longer pruned then.
    """

    def __init__(self, sessions: Sessions, journal: SessionStore, after: float) -> None:
        self._sessions = sessions
        self._journal = journal
        self._after = after

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(min(self._after / ROUNDS, LONGEST_PAUSE))
            try:
                await self._journal.note_time()
                await self.prune()
            except StoreUnavailable:
                log.debug("Unused sessions are pruned later", action="prune_later")
            except Exception:
                log.exception("Unused sessions could not be pruned", action="prune_failed")
            self._sessions.live.forget(DORMANT, self._sessions.workers)

    async def prune(self) -> int:
        """Prune unused sessions; returns their number."""
        before = self._journal.clock.now() - int(self._after * 1000)
        pruned = 0
        for session_id in await self._journal.unused(before):
            if not self._sessions.live.in_use(session_id):
                hidden = partial(self._sessions.live.pruned, session_id)
                pruned += await done(
                    self._journal.prune(session_id, before, hidden),
                    self._journal.writable,
                    "An unused session could not be pruned",
                    action="prune_failed",
                    session=session_id,
                )
        if pruned:
            log.info("Unused sessions pruned", action="sessions_pruned", count=pruned)
        return pruned
