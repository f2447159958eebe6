"""Number of workers that may be alive, and which idle one makes room for another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from pykoclaw_acp.pool.life import WorkerLife

# s; nothing tells the pool that the clients of a permission request have left
RETRY_INTERVAL: Final = 5.0

log: Final = structlog.get_logger()


class Capacity:
    """Places for workers. `workers` are those alive; `retire` stops one in the background;
    `make_room` asks the sessions for a permission request to park, for the sake of a session.
    """

    def __init__(
        self,
        most: int,
        workers: Mapping[str, WorkerLife],
        retire: Callable[[WorkerLife], None],
        make_room: Callable[[str], None],
    ) -> None:
        self._most = most
        self._workers = workers
        self._retire = retire
        self._make_room = make_room
        self._starting: set[str] = set()  # counted already, not launched yet
        self._waiting = 0  # sessions that need a place
        self._changed = asyncio.Event()  # a worker became idle or went away

    def is_reserved(self, session_id: str) -> bool:
        """Whether the session has a place, and its worker is not launched yet."""
        return session_id in self._starting

    @property
    def has_room(self) -> bool:
        """Whether one more worker is allowed at once."""
        return len(self._workers) + len(self._starting) < self._most

    @property
    def _lacks(self) -> bool:
        """Whether fewer workers are stopping than sessions wait for a place, or than are too many."""
        surplus = len(self._workers) + len(self._starting) - self._most
        return sum(one.stopping for one in self._workers.values()) < self._waiting + surplus

    async def reserve(self, session_id: str) -> None:
        """Wait until one more worker is allowed; stop the one that is idle longest, unless enough
        are stopping.

        If none is idle, nor enough are stopping, ask the sessions to park a permission request that
        nobody is there to answer.
        """
        self._waiting += 1
        try:
            await self._wait_for_room(session_id)
        finally:
            self._waiting -= 1
        self._starting.add(session_id)

    async def _wait_for_room(self, session_id: str) -> None:
        while not self.has_room:
            idle = sorted(
                (one for one in self._workers.values() if one.idle), key=lambda one: one.idle_since
            )
            if idle and self._lacks:
                self._retire(idle[0])
            elif not idle and self._lacks:
                log.info(
                    "All workers are busy; the turn waits", action="pool_full", session=session_id
                )
                self._make_room(session_id)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_INTERVAL):
                    await self._changed.wait()

    def release(self, session_id: str) -> None:
        """Give up the reserved place: its worker is counted from now on, or was not launched."""
        self._starting.discard(session_id)
        self._changed.set()

    def changed(self) -> None:
        """Look again for room: a worker has become idle, or is gone."""
        self._changed.set()
