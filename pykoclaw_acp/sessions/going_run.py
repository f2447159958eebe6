"""A run of a scheduled task that has no result yet, and its turns."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.sessions.session import Session


@dataclass(eq=False, slots=True)
class GoingRun:
    """A run and what works on it: while it tidies up behind its result, the next may have begun."""

    run: TaskRun
    recovered: bool = False  # an earlier daemon has begun it
    act: asyncio.Task[None] | None = None
    turn: Turn | None = None  # which it is, or may be
    given: ClientEnvironment | None = None  # by who asked for it
    parked: bool = False  # a request of its turn is, and waits for an answer

    @property
    def is_queued(self) -> bool:
        """Whether it has not begun: its turn waits, and is not that which tells Claude an answer."""
        turn = self.turn
        return turn is not None and turn.state == TurnState.QUEUED and not turn.tells_answer

    @property
    def has_ended(self) -> bool:
        """Whether its turn has ended: then it waits for work in the background."""
        return self.turn is not None and self.turn.ended.done() and not self.parked

    async def outcome(self, session: Session, turn: Turn, changed: asyncio.Event) -> Outcome:
        """The end of its turn; if that has parked a request, of the turn that tells Claude the answer,
        however late. `changed` is set when it begins to wait for one.
        """
        while True:
            self.turn = turn
            outcome, _ = await asyncio.shield(turn.ended)
            self.parked = session.permissions.has_parked([turn.turn_id])
            if self.parked:
                changed.set()
            try:
                following = await session.permissions.answer_to(turn.turn_id)
            finally:
                self.parked = False
            if following is None:
                return outcome
            self.run.turn_id, turn = following.turn_id, following
