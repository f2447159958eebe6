"""How often daemons have begun to prepare a turn: one that kills them is not tried for ever."""

from __future__ import annotations

from typing import Final

import structlog

from pykoclaw_acp.model.turns import Turn, TurnState
from pykoclaw_acp.sessions.ports.journal import TurnsAndNotes

log: Final = structlog.get_logger()


class Attempts:
    """Counts those of one session's turns, in the journal."""

    def __init__(self, journal: TurnsAndNotes) -> None:
        self._journal = journal

    async def begin(self, turn: Turn) -> None:
        """Count the turn as being prepared: if this daemon dies from now on, it died over the turn."""
        if not turn.begun:
            await self._journal.begin_attempt(turn.turn_id)
            turn.begun = True

    async def pause(self, turn: Turn) -> None:
        """Count the turn as not being prepared for now: if this daemon dies, it did not die over
        the turn.
        """
        if turn.begun and turn.state == TurnState.QUEUED:
            turn.begun = False
            try:
                await self._journal.undo_attempt(turn.turn_id)
            except Exception:
                turn.begun = True
                log.exception(
                    "That a turn waits could not be recorded", action="attempt_not_recorded"
                )
