"""Lists of sessions, in the database."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.model.listing import ListedSession, ListQuery
from pykoclaw_acp.sessions.ports.store import Store


class ListStore(Store, Protocol):
    """Sessions in lists: those that a person has prompted, of all programs."""

    async def listed(self, query: ListQuery) -> list[ListedSession]:
        """The first ones after the query's place, in the order of their places."""

    async def set_archived(self, session_id: str, *, archived: bool) -> None:
        """Whether the session is left out of lists that do not ask for it. Raises Conflict if it is
        gone.
        """
