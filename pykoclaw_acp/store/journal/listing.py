"""Lists of sessions, over `store/listing.py`."""

from __future__ import annotations

from pykoclaw_acp.model.listing import ListedSession, ListQuery
from pykoclaw_acp.store import listing, sessions
from pykoclaw_acp.store.journal.base import SqlStore


class SqlListStore(SqlStore):
    """Implements `sessions.ports.ListStore`."""

    async def listed(self, query: ListQuery) -> list[ListedSession]:
        """The first sessions after the query's place."""
        return await listing.listed(self._database, query)

    async def set_archived(self, session_id: str, *, archived: bool) -> None:
        """Whether the session is left out of lists that do not ask for it."""
        await self._run(sessions.set_archived(session_id, archived=archived))
