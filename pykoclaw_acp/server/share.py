"""Fair shares of the event loop for clients that send much."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final
from weakref import WeakValueDictionary

from pykoclaw_acp import on_behalf

SLICE: Final = 0.0005  # s of the thread's CPU time that one piece of work may take
CALLS: Final = 16  # that may be begun in it
# s after a slice that belong to the others, and to the threads that read for them
REST: Final = 0.001
# s between two calls that are slow, or open sessions, of clients that have sent many at once; one
# takes some 2 to 4 ms of CPU time
PAUSE: Final = 0.01
PLACES: Final = 16  # of one process, for calls that open sessions


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
        self._places: WeakValueDictionary[object, asyncio.Semaphore] = WeakValueDictionary()

    async def next(self) -> None:
        """Wait for another slice."""
        async with self._lock:
            self.slices += 1
            await asyncio.sleep(REST)

    async def pause(self) -> None:
        """Wait before a call of a client that sends such calls faster than they are answered."""
        async with self._pausing:
            await asyncio.sleep(PAUSE)

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold one of the places that the client's process has for calls that open sessions."""
        process = on_behalf.client.get()
        places = self._places.get(process)
        if places is None:
            places = self._places[process] = asyncio.Semaphore(PLACES)
        crowded = places.locked()
        async with places:
            if crowded:
                await self.pause()
            yield

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

    async def step(self, *, begun: bool, crowded: bool = False) -> None:
        """Account for a processed line; `begun`: it started a call. `crowded`: others wait for answers,
        so that all such clients together begin one in each round of the loop.
        """
        self._calls += begun
        if self._calls >= CALLS or time.thread_time() - self._began >= SLICE:
            self.waited += 1
            await self._turnstile.next()
            self.begin()
        elif begun and crowded:
            await self._turnstile.pass_on()
