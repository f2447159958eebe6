"""The journal, which says after a commit what people may have to be told of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykoclaw_acp.channel.frames import Numbered
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import Deadline, RequestPolicy
from pykoclaw_acp.model.turns import Outcome
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.session_journal import SessionJournal


class HintingJournal(SessionJournal):
    """Calls `turn_ended` and `request_waits` with ids. A hint may be missing after a crash: what
    counts is in the database.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.turn_ended: Callable[[str], None] = lambda turn_id: None  # noqa: ARG005
        self.request_waits: Callable[[str], None] = lambda ask_id: None  # noqa: ARG005

    async def record(
        self,
        session_id: str,
        epoch: int,
        frames: Sequence[Numbered],
        outcomes: dict[str, Outcome],
        *,
        dead: bool = False,
    ) -> list[Logged]:
        """Record a worker's frames, and give a hint of each turn that they ended."""
        logged = await super().record(session_id, epoch, frames, outcomes, dead=dead)
        for turn_id in outcomes:
            self.turn_ended(turn_id)
        return logged

    async def finish(
        self,
        session_id: str,
        turn_id: str,
        outcome: Outcome,
        said: Sequence[Event],
        *,
        silent: bool = False,
    ) -> tuple[Outcome, list[int]]:
        """End a turn, and give a hint of it."""
        ended = await super().finish(session_id, turn_id, outcome, said, silent=silent)
        self.turn_ended(turn_id)
        return ended

    async def set_clock(
        self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None
    ) -> None:
        """Set a request's policy and deadline, and give a hint of one that waits for nobody who is
        there.
        """
        await super().set_clock(ask_id, policy, deadline)
        if policy != RequestPolicy.ATTENDED:
            self.request_waits(ask_id)
