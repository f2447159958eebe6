"""Parking a permission request of one session: it waits on, and what waited for it is stopped."""

from __future__ import annotations

import contextlib
from typing import Final

import structlog

from pykoclaw_acp.errors import InvalidRequest, StoreClosed
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.sessions.background import BackgroundTurns
from pykoclaw_acp.sessions.permissions import words
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.ports import PermissionStore, Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.sessions.turns.runner import TurnRunner
from pykoclaw_acp.sessions.worker_requests import WorkerRequests
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class Parking:
    """Parks requests that nobody is there to answer, and frees their worker."""

    def __init__(
        self,
        state: SessionState,
        store: PermissionStore,
        workers: Workers,
        *,
        permissions: Broker,
        queue: TurnQueue,
        background: BackgroundTurns,
        runner: TurnRunner,
        requests: WorkerRequests,
    ) -> None:
        self._state = state
        self._store = store
        self._workers = workers
        self._permissions = permissions
        self._queue = queue
        self._background = background
        self._runner = runner
        self._requests = requests
        self._tasks = Tasks()
        self.gives_up_worker = False
        """Whether its worker is given up, for the sake of others, as soon as its turn has ended."""

    def __bool__(self) -> bool:
        """Whether something is being stopped."""
        return bool(self._tasks)

    async def park(self, one: PendingRequest) -> None:
        """Write down that the request waits on, stop what waits for it, give up the worker."""
        request = one.request
        note = words.parked_note(request, by_subagent=not self._runs(request.turn_id))
        try:
            seqs = await self._store.park(self._state.id, request, note)
            self._state.log.committed(seqs, request.turn_id, note)
        except StoreClosed:  # the next daemon parks it
            return
        except Exception:  # noqa: BLE001  which the broker logs
            self._permissions.go_on_asking(one)
            return
        self._stop(request)
        log.info(
            "Permission request parked",
            action="question_parked",
            session=self._state.id,
            question=request.ask_id,
        )

    def adopted(self) -> None:
        """Stop the turns whose requests the other daemon has parked: it may not have said so."""
        for turn_id in self._permissions.away.parked_turns:
            self._tasks.start(self._stop_turn(turn_id))

    def caught_up(self, asked: list[str]) -> None:
        """Stop the subagents whose requests, among those that the adopted worker has open, the other
        daemon has parked.
        """
        for request in self._permissions.parked:
            if request.ask_id in asked and not self._runs(request.turn_id):
                self._stop(request)

    def _stop(self, request: PermissionRequest) -> None:
        """Stop the turn of a parked request; if it has ended, the subagent that waits, or all where
        that does not interrupt another turn.
        """
        if self._runs(request.turn_id):
            self._tasks.start(self._stop_turn(request.turn_id))
        elif not (self._queue.uses_worker or self._background):
            self._requests.stop_subagents(words.UNATTENDED)
        elif request.parent_id is not None:
            self._tasks.start(self._stop_subagent(request.parent_id))

    async def _stop_subagent(self, call: str) -> None:
        with contextlib.suppress(InvalidRequest):  # it has ended
            await self._requests.stop_task(call, words.UNATTENDED)

    def _runs(self, turn_id: str) -> bool:
        return turn_id in self._background or self._queue.running(turn_id) is not None

    async def _stop_turn(self, turn_id: str) -> None:
        """Stop a turn that runs, and what was given to it, and free its worker before the next turn
        begins.
        """
        self._state.explained.add(turn_id)
        if turn_id in self._background:
            await self._background.stop(turn_id, words.UNATTENDED)
        if self._queue.running(turn_id) is None:
            return
        self.gives_up_worker = True
        try:
            with self._queue.hold():
                given = self._queue.given
                self._state.explained.update(turn.turn_id for turn in given)
                for turn in reversed(given):
                    if not (turn.cancelled.is_set() or turn.ended.done()):
                        turn.cancelled.set()
                        self._tasks.start(self._runner.stop(turn))
                for turn in given:
                    await turn.over()
                if not self._queue.uses_worker:
                    self._workers.release(self._state.id)
                    self._workers.evict(self._state.id)
        finally:
            self.gives_up_worker = False
