"""Names of new conversations: `acp-` and the beginning of the session's id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pykoclaw_acp.model.conversations import NAME_LENGTH, OWN
from pykoclaw_acp.sessions.ports import SessionStore


class ConversationNames:
    """Gives each new conversation a name that no other has, in this process and in the database."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._reserved: set[str] = set()  # of conversations that are being made

    @asynccontextmanager
    async def reserve(self, session_id: str) -> AsyncIterator[str]:
        """A free name, kept from others until the conversation is in the database."""
        name = await self._free(session_id)
        self._reserved.add(name)
        try:
            yield name
        finally:
            self._reserved.discard(name)

    async def _free(self, session_id: str) -> str:
        for length in range(NAME_LENGTH, len(session_id) + 1):
            name = f"{OWN}-{session_id[:length]}"
            if not await self._store.name_taken(name) and name not in self._reserved:
                return name
        raise RuntimeError("a UUID was given out twice")
