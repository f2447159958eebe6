"""Deletions of sessions: hidden by one commit, after which they happen whatever comes; what is left of
one is deleted as soon as the database can be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import structlog

from pykoclaw_acp.sessions import closing
from pykoclaw_acp.sessions.live_sessions import LiveSessions
from pykoclaw_acp.sessions.ports import SessionStore, Workers
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.tasks import Tasks, told_elsewhere

STORE_CHECK: Final = 0.5  # s between two looks at whether the database can be written

log: Final = structlog.get_logger()


class Deletions:
    """Deletions in progress. Their sessions cannot be found, unless the deletion fails."""

    def __init__(self, store: SessionStore, live: LiveSessions) -> None:
        self._store = store
        self._live = live
        self._sessions: set[str] = set()
        self._tasks = Tasks()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._sessions

    async def delete(
        self,
        session: Session,
        workers: Workers,
        close: Callable[[Session], Awaitable[None]],
        transcripts: Collection[str] = (),
    ) -> None:
        """Close a session and delete it. What begins in it meanwhile is ended, with its worker, before
        the session is let go of. Where the database cannot be written once it is hidden, the rest is
        not waited for. `transcripts`: Claude sessions whose transcripts are to be removed afterwards.
        """
        self._sessions.add(session.id)
        session.intake.ends = True
        try:
            await close(session)
            await self._hide(session, transcripts)
            await closing.stop(session, workers)  # a turn of an answer that came meanwhile
            await session.idle()
            closing.let_go(session, every=True)  # a load that was under way
            self._live.remove(session.id)
            workers.forget(session.id)
        finally:
            self._sessions.discard(session.id)
            session.intake.ends = False

    async def _hide(self, session: Session, transcripts: Collection[str]) -> None:
        """Returns when the session is deleted, or sure to be."""
        sure = asyncio.Event()

        def hidden() -> None:
            sure.set()
            session.permissions.withdraw_parked()

        troubles = self._store.troubles
        deleting = self._tasks.start(self._delete(session.id, hidden, sure, transcripts))
        deleting.add_done_callback(told_elsewhere)
        while not (sure.is_set() and troubles != self._store.troubles):
            await asyncio.wait([deleting], timeout=STORE_CHECK)
            if deleting.done():
                deleting.result()
                return

    async def _delete(
        self,
        session_id: str,
        hidden: Callable[[], None],
        sure: asyncio.Event,
        transcripts: Collection[str],
    ) -> None:
        try:
            await self._store.delete(session_id, hidden, transcripts)
        except Exception:
            if not sure.is_set():
                raise
            log.exception(
                "What a deleted session has left is deleted by the next server",
                action="purge_failed",
                session=session_id,
            )
