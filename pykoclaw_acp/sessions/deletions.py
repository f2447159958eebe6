"""Deletions of sessions: hidden by one commit, after which they happen whatever comes; what is left of
one is deleted as soon as the database can be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from pykoclaw_acp.sessions.ports import SessionStore
from pykoclaw_acp.tasks import Tasks, told_elsewhere

STORE_CHECK: Final = 0.5  # s between two looks at whether the database can be written

log: Final = structlog.get_logger()


class Deletions:
    """Those that go on."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._tasks = Tasks()

    async def delete(self, session_id: str, hidden: Callable[[], None]) -> None:
        """Delete a session; `hidden` is called once it is sure. Where the database cannot be written
        after that, the rest is not waited for.
        """
        sure = asyncio.Event()

        def hide() -> None:
            hidden()
            sure.set()

        troubles = self._store.troubles
        deleting = self._tasks.start(self._delete(session_id, hide, sure))
        deleting.add_done_callback(told_elsewhere)
        while not (sure.is_set() and troubles != self._store.troubles):
            await asyncio.wait([deleting], timeout=STORE_CHECK)
            if deleting.done():
                deleting.result()
                return

    async def _delete(self, session_id: str, hide: Callable[[], None], sure: asyncio.Event) -> None:
        try:
            await self._store.delete(session_id, hide)
        except Exception:
            if not sure.is_set():
                raise
            log.exception(
                "What a deleted session has left is deleted by the next server",
                action="purge_failed",
                session=session_id,
            )
