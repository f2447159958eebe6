"""Lists of sessions, over `store/listing.py`."""

from __future__ import annotations

from pykoclaw_acp.model.listing import ListedSession, ListQuery
from pykoclaw_acp.store import listing, sessions
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.unopened import Unopened


class SqlListStore(SqlStore):
    """Implements `sessions.ports.ListStore`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._unopened = Unopened()

    async def listed(self, query: ListQuery) -> list[ListedSession]:
        """The first sessions after the query's place."""
        return await listing.listed(self._database, query, self._unopened)

    async def set_archived(self, session_id: str, *, archived: bool) -> None:
        """Whether the session is left out of lists that do not ask for it."""
        await self._run(sessions.set_archived(session_id, archived=archived))
