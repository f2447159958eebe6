"""Rows of conversations that other programs write while clients have the sessions open."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreClosed
from pykoclaw_acp.sessions.ports import ConversationStore
from pykoclaw_acp.sessions.registry import Sessions

log: Final = structlog.get_logger()


class RowChanges:
    """Lets sessions that have clients look at what another program has put into their rows.

    Set `changed` when another program may have written.
    """

    def __init__(self, sessions: Sessions, store: ConversationStore) -> None:
        self.changed = asyncio.Event()
        self._sessions = sessions
        self._store = store

    async def run(self) -> None:
        """Look at each change until cancelled, or until the store is closed."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            try:
                await self.look()
            except StoreClosed:
                return
            except Exception:
                log.exception("Rows of conversations could not be read", action="rows_unread")

    async def look(self) -> None:
        """Look now."""
        attended = {one.id: one for one in self._sessions.live.values() if one.subscriptions}
        for session_id in await self._store.changed_rows(attended):
            attended[session_id].others.changed()
