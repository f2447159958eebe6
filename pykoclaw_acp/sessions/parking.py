"""Parking: a permission request waits on without its worker, whose turn ends."""

from __future__ import annotations

from collections.abc import Callable

from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.permissions import words
from pykoclaw_acp.sessions.ports import Journal, Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns.background import BackgroundTurns
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.sessions.turns.runner import TurnRunner
from pykoclaw_acp.tasks import Tasks


class Parking:
    """Parks requests of one session. `active`: its worker is given up as soon as its turn has ended,
    for the sake of others.
    """

    def __init__(
        self,
        state: SessionState,
        journal: Journal,
        workers: Workers,
        *,
        queue: TurnQueue,
        runner: TurnRunner,
        background: BackgroundTurns,
        cancel: Callable[[Turn], object],
    ) -> None:
        self.active = False
        self._state = state
        self._journal = journal
        self._workers = workers
        self._queue = queue
        self._runner = runner
        self._background = background
        self._cancel = cancel
        self._tasks = Tasks()

    def __bool__(self) -> bool:
        """Whether a worker is being given up."""
        return bool(self._tasks)

    async def park(self, request: PermissionRequest) -> None:
        """Write down that the request waits on, stop its turn, give up the worker."""
        note = words.parked_note(request)
        seqs = await self._journal.park(self._state.id, request, note)
        self._state.log.committed(seqs, request.turn_id, note)
        self._tasks.start(self.give_up_worker(request.turn_id))

    async def give_up_worker(self, turn_id: str) -> None:
        """Stop a turn, and what was given to it, and free its worker for others before the next turn
        begins.
        """
        self._state.explained.add(turn_id)
        if turn_id in self._background:
            await self._background.stop(turn_id)
        elif self._queue.running(turn_id):
            self.active = True
            try:
                with self._queue.hold():
                    given = self._queue.given
                    self._state.explained.update(turn.turn_id for turn in given)
                    for turn in reversed(given):
                        self._cancel(turn)
                    for turn in given:
                        await turn.over()
                    self._workers.release(self._state.id)
                    self._workers.evict(self._state.id)
            finally:
                self.active = False
