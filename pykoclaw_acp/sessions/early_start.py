"""The start of a session's worker before its next prompt, in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks


class EarlyStart:
    """The early start of one session, as those see it who wait for it or end it.

    `used`: a turn has come for the worker since. `barred`: none may begin now.
    """

    def __init__(self, state: SessionState, workers: Workers) -> None:
        self._state = state
        self._workers = workers
        self.used = False
        self.barred = False
        self._tasks = Tasks()
        self._starting: asyncio.Task[None] | None = None
        self._waiting = 0  # turns, which have the worker when it is ready

    @property
    def runs(self) -> bool:
        """Whether the worker is being started."""
        return self._starting is not None and not self._starting.done()

    @property
    def awaited(self) -> bool:
        """Whether a turn waits for the worker."""
        return self._waiting > 0

    def begin(self, starting: Coroutine[Any, Any, None]) -> None:
        """Start the worker in the background, by `starting`."""
        self.used = False
        self._starting = self._tasks.start(starting)

    async def over(self) -> None:
        """Wait until the worker is ready, or could not be started; for a turn that acquires it."""
        self.used = True
        if self._starting is not None:
            self._waiting += 1
            try:
                await asyncio.wait([self._starting])
            finally:
                self._waiting -= 1

    @contextlib.asynccontextmanager
    async def bar(self) -> AsyncIterator[None]:
        """Give up the start, and begin none meanwhile: what the next worker resumes changes. One
        that was launched goes on.
        """
        self.barred = True
        try:
            if self._starting is not None:
                self.suspend()
                await asyncio.wait([self._starting])
            yield
        finally:
            self.barred = False

    def end(self) -> None:
        """Give it up: there was no prompt."""
        self.suspend()
        self._workers.retire(self._state.id)

    def suspend(self) -> None:
        """Launch no worker any more; one that was launched goes on."""
        if self._starting is not None:
            self._starting.cancel()
