"""What the parts of the journal share: a database, its clock and its condition."""

from __future__ import annotations

from pykoclaw_acp.store import clocks
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.units import Statement, Unit
from pykoclaw_acp.system.clock import Clock


class SqlStore:
    """Implements `sessions.ports.Store`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def clock(self) -> Clock:
        """The data directory's own clock."""
        return self._database.clock

    @property
    def troubles(self) -> int:
        """How many times the database has become unwritable."""
        return self._database.condition.troubles

    def require_writable(self) -> None:
        """Raises StoreUnavailable while the database cannot be written."""
        self._database.condition.require()

    async def writable(self) -> None:
        """Wait until the database can be written."""
        await self._database.condition.writable()

    async def note_time(self) -> None:
        """Record the reading of the own clock."""
        await self._run(clocks.note(self.clock))

    async def _run(self, statement: Statement, *, patient: bool = False) -> None:
        await self._commit(Unit(statements=(statement,)), patient=patient)

    async def _commit(self, unit: Unit, *, patient: bool = False) -> list[int]:
        return await self._database.commit(unit, patient=patient)
