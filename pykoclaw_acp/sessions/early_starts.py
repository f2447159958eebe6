"""Workers of sessions that were opened, started before a prompt comes: Claude takes a second or two
to start, in which the user still writes.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pykoclaw_acp.sessions.live_sessions import LiveSessions
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.session import Session

MOST: Final = 2  # at a time; each has some 250 MB
UNUSED: Final = 300.0  # s without a prompt, after which such a worker is stopped
READING: Final = 1.0  # s after a load; a client that opens many gets a worker for the last one


class EarlyStarts:
    """Early starts of all sessions. The oldest makes room for the next one."""

    def __init__(self, live: LiveSessions, workers: Workers) -> None:
        self._live = live
        self._workers = workers
        self._ends: dict[str, asyncio.TimerHandle] = {}  # by session
        self._next: asyncio.TimerHandle | None = None

    def begin_soon(self, session: Session) -> None:
        """Start a worker for a session that was loaded, after its user has had time to read."""
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.get_running_loop().call_later(READING, self._begin_if_open, session)

    def _begin_if_open(self, session: Session) -> None:
        self._next = None
        if session.subscriptions and not session.record.auxiliary:
            self.begin(session)

    def begin(self, session: Session) -> None:
        """Start the worker of a session that nobody has prompted, in the background."""
        gone = session.record.closed or self._live.get(session.id) is not session
        if gone or session.busy or session.early.barred or self._workers.is_live(session.id):
            return
        if session.id in self._ends:
            if not session.early.used:
                return
            self._end(session.id)
        while len(self._ends) >= MOST:
            self._end(next(iter(self._ends)))
        loop = asyncio.get_running_loop()
        self._ends[session.id] = loop.call_later(UNUSED, self._end, session.id)
        session.early_launcher.begin()

    def end(self) -> None:
        """Give up those that have had no prompt, as what they were started with holds no more."""
        for session_id in list(self._ends):
            self._end(session_id)

    def _end(self, session_id: str) -> None:
        self._ends.pop(session_id).cancel()
        session = self._live.get(session_id)
        if session is None:
            self._workers.evict(session_id)
        elif not (session.early.used or session.early.barred):
            session.early.end()
