"""Sessions that could not be made: what was inserted of them is deleted, and nobody waits for that."""

from __future__ import annotations

from typing import Final

import structlog

from pykoclaw_acp.errors import StoreClosed
from pykoclaw_acp.sessions.ports.making import MakingStore
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class GivenUp:
    """Sessions whose remains are being deleted: it may take minutes, and as long as the disk is full."""

    def __init__(self, store: MakingStore) -> None:
        self._store = store
        self._tasks = Tasks()

    def add(self, session_id: str) -> None:
        """Delete what was inserted of a session, unless it is shown."""
        self._tasks.start(self._delete(session_id))

    async def _delete(self, session_id: str) -> None:
        try:
            await self._store.give_up(session_id)
        except StoreClosed:
            pass  # the next server does it
        except Exception:
            log.exception(
                "What a session that could not be made has left is deleted by the next server",
                action="purge_failed",
                session=session_id,
            )
