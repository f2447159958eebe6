"""Turns that were cancelled and do not end."""

from __future__ import annotations

from typing import Final

import structlog

from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.ports.journal import TurnsAndNotes
from pykoclaw_acp.sessions.turns import undisturbed
from pykoclaw_acp.sessions.turns.queue import TurnQueue

log: Final = structlog.get_logger()


class Overdue:
    """Kills the worker of one session for a cancelled turn that goes on after `grace` (s)."""

    def __init__(
        self,
        session_id: str,
        journal: TurnsAndNotes,
        workers: Workers,
        queue: TurnQueue,
        grace: float,
    ) -> None:
        self._session_id = session_id
        self._journal = journal
        self._workers = workers
        self._queue = queue
        self._grace = grace

    async def watch(self, turn: Turn) -> None:
        """Wait for the turn's end; kill its worker if that does not come. The grace begins anew while
        frames cannot be stored, since nobody sees the end then, and while Claude has not taken a
        steering prompt up: the turn that runs is another, which nobody may have cancelled.
        """
        while not turn.ended.done():
            untaken = self._queue.is_untaken(turn)
            seen = await undisturbed.wait(self._journal, turn, self._grace)
            if untaken or not seen or turn.ended.done():
                continue
            log.warning(
                "The turn did not stop; its worker is killed",
                action="cancel_overdue",
                turn=turn.turn_id,
            )
            self._workers.kill(self._session_id)
            return
