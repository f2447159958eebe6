"""The sessions in this process's memory."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from contextlib import contextmanager

from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.session import Session


class LiveSessions(Mapping[str, Session]):
    """Sessions in memory, by id. Idle ones leave after a while; `Sessions.find` loads them again."""

    def __init__(self) -> None:
        self._live: dict[str, Session] = {}
        self._kept: Counter[str] = Counter()
        self._suspended = False

    def __getitem__(self, session_id: str) -> Session:
        return self._live[session_id]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._live))

    # Snapshots: while somebody goes through them and waits, sessions come and go.

    def values(self) -> ValuesView[Session]:
        """The sessions of this moment."""
        return dict(self._live).values()

    def items(self) -> ItemsView[str, Session]:
        """The sessions of this moment, by their ids."""
        return dict(self._live).items()

    def __len__(self) -> int:
        return len(self._live)

    def add(self, session: Session) -> None:
        """Keep a session, which is accessed now."""
        self._live[session.id] = session
        session.suspended = self._suspended
        session.found = time.monotonic()

    def find(self, session_id: str) -> Session | None:
        """Return the session if it is in memory, and note the access."""
        live = self._live.get(session_id)
        if live is not None:
            live.found = time.monotonic()
        return live

    def remove(self, session_id: str) -> None:
        """Drop a session that was deleted."""
        self._live.pop(session_id, None)

    @contextmanager
    def kept(self, session_id: str) -> Iterator[None]:
        """Keep the session in memory meanwhile: who has found it may have to wait for a disk, and a
        second one would have the log, too.
        """
        self._kept[session_id] += 1
        try:
            yield
        finally:
            self._kept[session_id] -= 1
            if not self._kept[session_id]:
                del self._kept[session_id]

    def forget(self, unseen: float, workers: Workers) -> None:
        """Drop idle sessions that were not accessed for `unseen` s, unless `workers` needs them."""
        before = time.monotonic() - unseen
        for session_id, live in self.items():
            idle = live.found <= before and live.dormant and session_id not in self._kept
            if idle and workers.forget(session_id):
                del self._live[session_id]

    def in_use(self, session_id: str) -> bool:
        """Whether a client has the session open, or a turn runs or waits."""
        live = self._live.get(session_id)
        return live is not None and (live.busy or bool(live.subscriptions))

    def pruned(self, session_id: str) -> None:
        """Note that the session's events were deleted from the database."""
        if (live := self._live.get(session_id)) is not None:
            live.log.pruned()

    async def cancel_all(self) -> None:
        """Interrupt every turn and wait until all have ended."""
        busy = [session for session in self._live.values() if session.busy or session.held]
        for session in busy:
            session.cancel()
        await asyncio.gather(*(session.idle() for session in busy))

    async def suspend(self) -> None:
        """Leave all turns to the next daemon, and start none, nor in sessions that are added."""
        self._suspended = True
        await asyncio.gather(*(session.suspend() for session in self._live.values()))
