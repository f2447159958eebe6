"""Rows of conversations that other programs write: sessions look at what has changed there.

Of a session without clients the row is looked at, too: a side turn would go on being the whole
memory of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from pykoclaw_acp.errors import SessionUnreadable, StoreClosed, StoreUnavailable
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.sessions.ports import ConversationStore
from pykoclaw_acp.sessions.registry import Sessions

PAUSE: Final = 60.0  # s between two looks at the rows of sessions without clients
SAME_PAUSE: Final = 10.0  # s between two looks of an attended session at what its row names

log: Final = structlog.get_logger()


class RowChanges:
    """Lets sessions look at what another program has put into their rows.

    Set `changed` and `changed_unattended` when another program may have written.
    """

    def __init__(self, sessions: Sessions, store: ConversationStore) -> None:
        self.changed = asyncio.Event()
        self.changed_unattended = asyncio.Event()
        self._sessions = sessions
        self._store = store
        self._seen: dict[str, str] = {}  # Claude sessions in rows that were looked at, by session
        self._attended: dict[str, tuple[str, float]] = {}  # of attended ones, and when again
        self._later: asyncio.TimerHandle | None = None  # until that

    async def run(self) -> None:
        """Look at each change in sessions that have clients until cancelled, or until the store is
        closed.
        """
        await self._run(self.changed, self.look)

    async def run_unattended(self) -> None:
        """Look at those without clients, now and after changes, until the same."""
        self.changed_unattended.set()
        await self._run(self.changed_unattended, self.look_unattended, PAUSE)

    async def _run(
        self, changed: asyncio.Event, look: Callable[[], Awaitable[None]], pause: float = 0
    ) -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                unread = "Rows of conversations could not be read"
                await until_done(look, unread, after=StoreUnavailable)
            except StoreClosed:
                return
            except Exception:
                log.exception("Rows of conversations could not be read", action="rows_unread")
            await asyncio.sleep(pause)

    async def look(self) -> None:
        """Let sessions that have clients look now; at the same again later, as a look that meets
        damage changes the database itself.
        """
        loop = asyncio.get_running_loop()
        attended = {one.id: one for one in self._sessions.live.values() if one.subscriptions}
        changed = await self._store.changed_rows(attended)
        now, later = loop.time(), []
        seen, self._attended = self._attended, {}
        for session_id, claude in changed.items():
            before, again = seen.get(session_id, ("", now))
            if before == claude and now < again:
                self._attended[session_id] = before, again
                later.append(again)
                continue
            self._attended[session_id] = claude, now + SAME_PAUSE
            attended[session_id].others.changed()
        if self._later is not None:
            self._later.cancel()
        self._later = loop.call_at(min(later), self.changed.set) if later else None

    async def look_unattended(self) -> None:
        """Let the others look now, one after the other, but not twice at the same. Raises
        StoreUnavailable if some of them have to be looked at again.
        """
        if self._sessions.awaits_recovery:
            return
        moved, unread = await self._store.moved_rows(), None
        self._seen = {one: seen for one, seen in self._seen.items() if one in moved}
        for session_id, claude in moved.items():
            if self._seen.get(session_id) == claude:
                continue
            stays = True
            try:
                stays = await self._look_unattended(session_id)
            except StoreUnavailable as error:
                if error.retryable:
                    unread = error
                    continue
            except StoreClosed:
                raise
            except SessionUnreadable:
                pass
            except Exception:  # the others must not wait behind it
                log.exception("A row was not looked at", action="rows_unread", session=session_id)
            if stays:  # one that was put right may be written again before the next look
                self._seen[session_id] = claude
        if unread is not None:
            raise unread

    async def _look_unattended(self, session_id: str) -> bool:
        """Whether the row was looked at and stays as it is."""
        session = await self._sessions.find(session_id)
        if session is None:
            return True
        if session.subscriptions or session.busy:
            return False
        await session.others.look()
        return bool(await self._store.changed_rows([session_id]))
