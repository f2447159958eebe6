"""The twin of `sessions.ports.LogStore`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, TitleChanged
from pykoclaw_acp.model.log import Logged
from tests.twins.base import MemoryStore


class MemoryLogStore(MemoryStore):
    async def append(
        self, session_id: str, events: Sequence[Event], *, patient: bool = False
    ) -> list[int]:
        def append() -> list[int]:
            row = self.database.session(session_id)
            before = row.updated_at
            self.database.used(session_id)
            if all(isinstance(one, TitleChanged | ModeChanged | ConfigChanged) for one in events):
                row.updated_at = before
            return self.database.log(session_id, None, events)

        return await self.database.write(append, patient=patient)

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """Each event as it was logged: here nothing is folded."""
        return [one for one in self.database.read().logs.get(session_id, []) if one.seq > after][
            :limit
        ]
