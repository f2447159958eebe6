"""What it takes to start a session's worker before its next prompt."""

from __future__ import annotations

from typing import Final

import structlog

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import StoreClosed, StoreUnavailable, WorkerFailed
from pykoclaw_acp.sessions.choosing import Choosing
from pykoclaw_acp.sessions.directories import Directories
from pykoclaw_acp.sessions.early_start import EarlyStart
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.session_environment import SessionEnvironment
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns.conversation import TurnConversation
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate

log: Final = structlog.get_logger()


class EarlyLauncher:
    """Starts the worker of one session before its next prompt."""

    def __init__(
        self,
        state: SessionState,
        workers: Workers,
        early: EarlyStart,
        *,
        gate: WorkspaceGate,
        environment: SessionEnvironment,
        choosing: Choosing,
        directories: Directories,
        others: TurnConversation,
    ) -> None:
        self._state = state
        self._workers = workers
        self._early = early
        self._gate = gate
        self._environment = environment
        self._choosing = choosing
        self._directories = directories
        self._others = others

    def begin(self) -> None:
        """Start the worker in the background; not if somebody has to be asked before, or another
        worker would have to end.
        """
        if not self._early.runs:
            self._early.begin(self._start())

    async def _holds(self, options: WorkerOptions) -> bool:
        """Whether a worker may still be started with these options."""
        now = await self._gate.without_asking(self._environment.options())
        return now is not None and (now.cwd, now.workspace) == (options.cwd, options.workspace)

    async def _start(self) -> None:
        try:
            await self._directories.note()
            if not await self._others.before_early_start():
                return
            options = await self._gate.without_asking(self._environment.options())
            # The place is taken before anything is waited for.
            if options is not None and self._workers.has_room:
                await self._launch(options)
        except (WorkerFailed, StoreUnavailable, StoreClosed) as error:
            log.info("The first prompt starts the worker", action="not_early", reason=str(error))
            self._workers.retire(self._state.id)  # the prompt has none that is dying

    async def _launch(self, options: WorkerOptions) -> None:
        try:
            self._state.epoch = await self._workers.acquire(self._state.id, options)
            if await self._holds(options):
                await self._choosing.tell_worker()
            else:  # nobody was asked about what acts there now
                self._workers.retire(self._state.id)
        finally:
            if not self._early.awaited:
                self._workers.release(self._state.id)
