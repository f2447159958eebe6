"""Start of a session's worker before its next prompt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import StoreClosed, StoreUnavailable, WorkerFailed
from pykoclaw_acp.sessions.choosing import Choosing
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.surroundings import SessionSurroundings
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class EarlyStart:
    """That of one session. `allowed` says whether a worker may be started, and is called before
    each start.

    `used`: a turn has come for the worker since. `barred`: none may begin now.
    """

    def __init__(
        self,
        state: SessionState,
        workers: Workers,
        gate: WorkspaceGate,
        surroundings: SessionSurroundings,
        choosing: Choosing,
        *,
        allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        self._state = state
        self._workers = workers
        self._gate = gate
        self._surroundings = surroundings
        self._choosing = choosing
        self._allowed = allowed
        self.used = False
        self.barred = False
        self._tasks = Tasks()
        self._starting: asyncio.Task[None] | None = None
        self._waiting = 0  # turns, which have the worker when it is ready

    def begin(self) -> None:
        """Start the worker in the background; not if somebody has to be asked before, or another
        worker would have to end.
        """
        if self._starting is None or self._starting.done():
            self.used = False
            self._starting = self._tasks.start(self._start())

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

    async def _holds(self, options: WorkerOptions) -> bool:
        """Whether a worker may still be started with these options."""
        now = await self._gate.without_asking(self._surroundings.options())
        return now is not None and (now.cwd, now.workspace) == (options.cwd, options.workspace)

    async def _start(self) -> None:
        try:
            if not await self._allowed():
                return
            options = await self._gate.without_asking(self._surroundings.options())
            # The place is taken before anything is waited for.
            if options is not None and self._workers.has_room:
                await self._launch(options)
        except (WorkerFailed, StoreUnavailable, StoreClosed) as error:
            log.info("The first prompt starts the worker", action="not_early", reason=str(error))
            self._workers.retire(self._state.id)  # the prompt has none that is dying

    async def _launch(self, options: WorkerOptions) -> None:
        try:
            self._state.epoch = await self._workers.acquire(self._state.id, options)
            self._surroundings.launched(options)
            if await self._holds(options):
                await self._choosing.tell_worker(options)
            else:  # nobody was asked about what acts there now
                self._workers.retire(self._state.id)
        finally:
            if not self._waiting:
                self._workers.release(self._state.id)
