"""Sessions that wait for the end of a usage limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.sessions.ports.store import Store


class LimitWaitStore(Store, Protocol):
    """What is waited for. `TurnJournal.record` begins a wait, and ends it with the answer to a person's
    prompt; `TurnJournal.accept` ends it.
    """

    async def limit_waits(self) -> list[LimitWait]:
        """All that wait, the first to go on first."""

    async def limit_wait(self, session_id: str) -> LimitWait | None:
        """What the session waits for, if it does."""

    async def give_up_limit_wait(self, wait: LimitWait, said: Sequence[Event]) -> list[int] | None:
        """End the wait, and say so in the log; None if it has ended already. Waits while the
        database cannot be written.
        """
