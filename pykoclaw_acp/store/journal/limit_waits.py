"""Sessions that wait for the end of a usage limit, over `store/limit_waits.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.store import events, limit_waits
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit
from pykoclaw_acp.tasks import in_pieces


class SqlLimitWaitStore(SqlStore):
    """Implements `sessions.ports.LimitWaitStore`."""

    async def limit_waits(self) -> list[LimitWait]:
        """All that wait, the first to go on first."""
        return await limit_waits.every(self._database)

    async def limit_wait(self, session_id: str) -> LimitWait | None:
        """What the session waits for, if it does."""
        return await limit_waits.of_session(self._database, session_id)

    async def give_up_limit_wait(self, wait: LimitWait, said: Sequence[Event]) -> list[int] | None:
        """End the wait, and say so in the log; None if it has ended already. Waits while the
        database cannot be written.
        """
        rows = await in_pieces(events.rows_in_steps(wait.session_id, None, said))
        dropped = limit_waits.drop(wait.session_id, wait.turn_id)
        try:
            return await self._commit(Unit((dropped,), rows), patient=True)
        except Conflict:
            return None
