"""The twin of `sessions.ports.making.MakingStore`."""

from __future__ import annotations

from tests.twins.base import MemoryStore


class MemoryMakingStore(MemoryStore):
    async def give_up(self, session_id: str) -> None:
        def give_up() -> None:
            row = self.database.sessions.get(session_id)
            if row is not None and row.hidden:
                row.hidden = False
                self.database.clear(session_id)

        await self.database.write(give_up, patient=True)
