"""Sessions' logs, over `store/events.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, TitleChanged
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.store import events, sessions
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit


class SqlLogStore(SqlStore):
    """Implements `sessions.ports.LogStore`."""

    async def append(
        self, session_id: str, said: Sequence[Event], *, patient: bool = False
    ) -> list[int]:
        """Log events that belong to no turn."""
        choices = all(isinstance(one, TitleChanged | ModeChanged | ConfigChanged) for one in said)
        used = sessions.chosen if choices else sessions.used
        statements = (*sessions.follow(session_id, said), used(session_id, self.clock.now()))
        return await self._commit(
            Unit(statements, events.rows(session_id, None, said)), patient=patient
        )

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """The events after a cursor, in order."""
        return await events.read(self._database, session_id, after, limit)
