"""What runs of scheduled tasks leave behind: their sessions aside, and what is noted of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.retries import done
from pykoclaw_acp.sessions.ports.tasks import TaskStore
from pykoclaw_acp.sessions.registry import Sessions

PAUSE: Final = 600.0  # s

log: Final = structlog.get_logger()


class LeftRuns:
    """Deletes runs that nobody needs any more."""

    def __init__(self, sessions: Sessions, store: TaskStore) -> None:
        self._sessions = sessions
        self._store = store

    async def run(self) -> None:
        """Delete runs that no later one of their task follows, until cancelled."""
        while True:
            try:
                await self._store.writable()
                await self.tidy()
            except StoreClosed:
                return
            except StoreUnavailable:
                log.debug("Runs of tasks are tidied later", action="task_tidy_later")
            except Exception:
                log.exception("Runs of tasks could not be tidied", action="task_tidy_failed")
            await asyncio.sleep(PAUSE)

    async def tidy(self) -> None:
        """Delete runs of deleted tasks, and those whose session is gone or was emptied, unless somebody
        needs that.
        """
        for turn_id, session_id in await self._store.outlived():
            if session_id is not None and not await self._done(
                self._delete(session_id), session_id
            ):
                continue
            await self._done(self._store.forget(turn_id), session_id)

    async def tidy_before(self, run: TaskRun) -> None:
        """Keep the newest run of a task that runs aside, and no other; what cannot be deleted, or is
        needed, is kept in mind.
        """
        sessions = await self._store.left_aside(run)
        if all([await self._done(self._delete(one), one) for one in sessions]):
            await self._store.forget_earlier(run)

    async def _done(self, deleting: Awaitable[bool | None], session_id: str | None) -> bool:
        return await done(
            deleting,
            self._store.writable,
            "A run of a task could not be tidied",
            action="task_tidy_failed",
            session=session_id,
        )

    async def _delete(self, session_id: str) -> bool:
        """False if a client has the session open, a turn runs there, or a request waits for an answer."""
        if (session := await self._sessions.find(session_id)) is not None:
            runs = self._sessions.live.in_use(session_id) or session.background
            if runs or session.permissions.pending_ids:
                return False
            await self._sessions.delete(session)
        unused = await self._store.claude_sessions_aside(session_id)
        await self._sessions.catalogue.remove_transcripts(unused)
        await self._store.discard_aside(session_id)
        return True
