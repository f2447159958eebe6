"""The pace of live updates: what a client draws at most, while text streams and commands write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

PER_SECOND: Final = 60  # updates of what goes on, to one client; screens draw no more
_STEP: Final = 1 / PER_SECOND


class LivePace:
    """Turns to send one client more of a message, or of what a call has done so far, one after the
    other, in all of its sessions.

    What comes meanwhile is sent with the turn, as one update. Nothing else waits: neither the
    beginning of a message, nor of a call, nor its end, nor what is read from the log of earlier.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0

    async def turn(self) -> bool:
        """Wait for the next turn; whether it was not at once."""
        if (wait := self.reserve()) <= 0:
            return False
        await self._sleep(wait)
        return True

    def reserve(self) -> float:
        """Take the next turn; how long (s) it is until then."""
        now = self._clock()
        mine = max(self._next, now)
        self._next = mine + _STEP
        return mine - now
