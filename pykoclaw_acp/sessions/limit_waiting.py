"""A session that would resume by itself after a usage limit is told not to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from pykoclaw_acp.model.limit_waits import given_up
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.ports.limit_waits import LimitWaitStore
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class LimitWaiting:
    """What one session waits for."""

    def __init__(self, state: SessionState, store: LimitWaitStore) -> None:
        self._state = state
        self._store = store
        self._tasks = Tasks()

    def give_up(self, cancelled: Sequence[Turn]) -> asyncio.Task[None]:
        """Stop in a task of its own, for a caller that may not wait; it ends when that is durable.
        What these turns have left to wait for counts, too.
        """
        return self._tasks.start(self._give_up(cancelled))

    async def _give_up(self, cancelled: Sequence[Turn]) -> None:
        for turn in cancelled:  # an end that is being committed may begin a wait
            await turn.over()
        await self.stop()

    async def stop(self) -> bool:
        """Whether the session has waited, and does not any more; its log says so."""
        wait = await self._store.limit_wait(self._state.id)
        if wait is None:
            return False
        said = given_up(wait.turn_id)
        seqs = await self._store.give_up_limit_wait(wait, said)
        if seqs is None:
            return False
        self._state.log.committed(seqs, None, said)
        log.info("A session waits no more", action="limit_wait_given_up", session=self._state.id)
        return True
