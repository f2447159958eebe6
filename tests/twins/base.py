"""What the twins share."""

from __future__ import annotations

from pykoclaw_acp.system.clock import Clock
from tests.twins.database import MemoryDatabase


class MemoryStore:
    """Implements `sessions.ports.Store` in memory."""

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        self.database = database or MemoryDatabase()

    @property
    def clock(self) -> Clock:
        return self.database.clock

    @property
    def troubles(self) -> int:
        return self.database.condition.troubles

    def require_writable(self) -> None:
        self.database.condition.require()

    async def writable(self) -> None:
        await self.database.condition.writable()

    async def note_time(self) -> None:
        await self.database.write(self.clock.note)
