"""Clients' cursors, over `store/cursors.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.cursors import Cursor, CursorChange
from pykoclaw_acp.store import cursors
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit


class SqlCursorStore(SqlStore):
    """Implements `sessions.ports.CursorStore`."""

    async def change_cursors(self, changes: Sequence[CursorChange]) -> None:
        """Apply changes of cursors in one transaction."""
        await self._commit(
            Unit(statements=tuple(cursors.change(one) for one in changes)), patient=True
        )

    async def cursors(self, session_id: str, client: str) -> list[Cursor]:
        """Cursors of all processes of a client in a session."""
        return await cursors.of(self._database, session_id, client)

    async def client_processes(self) -> list[str]:
        """Client processes that have cursors."""
        return await cursors.client_processes(self._database)

    async def age_cursors(self, ended: Sequence[str], living: Sequence[str], before: int) -> None:
        """Record which processes have ended and which live; delete what was left by `before` (ms,
        own clock).
        """
        await self._commit(
            Unit(statements=tuple(cursors.age(ended, living, self.clock.now(), before)))
        )
