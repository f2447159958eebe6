"""Fair shares of the event loop for clients that send much."""

from __future__ import annotations

import asyncio
import time
from typing import Final

SLICE: Final = 0.0005  # s of the thread's CPU time that one piece of work may take
CALLS: Final = 16  # that may be begun in it
# s after a slice that belong to the others, and to the threads that read for them
REST: Final = 0.001
# s between two slow calls that clients have sent at once; one takes some 4 ms of CPU time
PAUSE: Final = 0.01


class Turnstile:
    """Admits clients that have used up a slice, one at a time and in order, and rests after each.

    All of them together have half of the loop at most: a small request takes dozens of rounds, and
    each would last a slice longer.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.slices = 0  # for tests and for people who look
        self.heavy = asyncio.Lock()  # of calls that cost much one runs at a time
        self._pausing = asyncio.Lock()

    async def next(self) -> None:
        """Wait for another slice."""
        async with self._lock:
            self.slices += 1
            await asyncio.sleep(REST)

    async def pause(self) -> None:
        """Wait before a slow call of a client that sends them faster than they are answered."""
        async with self._pausing:
            await asyncio.sleep(PAUSE)

    async def pass_on(self) -> None:
        """Yield to waiting clients, after less than a slice."""
        async with self._lock:
            await asyncio.sleep(0)


class Share:
    """The share of one client. A client that sends little never waits."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile
        self._began = 0.0
        self._calls = 0
        self.waited = 0  # times, for tests and for people who look

    def begin(self) -> None:
        """Start a slice: input has arrived."""
        self._began = time.thread_time()
        self._calls = 0

    async def step(self, *, begun: bool) -> None:
        """Account for a processed line; `begun`: it started a call."""
        self._calls += begun
        if self._calls >= CALLS or time.thread_time() - self._began >= SLICE:
            self.waited += 1
            await self._turnstile.next()
            self.begin()
