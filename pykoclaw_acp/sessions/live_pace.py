"""The pace of live text: what a client draws at most, while it streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

PER_SECOND: Final = 60  # updates of a message that goes on, to one client; screens draw no more
_STEP: Final = 1 / PER_SECOND


class LivePace:
    """Turns of one client's subscriptions to send it more of a message, one after the other.

    What comes while a subscription waits is sent with its turn, as one update. Nothing else waits:
    neither the beginning of a message, nor tool calls, nor what is read from the log of earlier.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next turn."""
        now = self._clock()
        mine = max(self._next, now)
        self._next = mine + _STEP
        if mine > now:
            await self._sleep(mine - now)
