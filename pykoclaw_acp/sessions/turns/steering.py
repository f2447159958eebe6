"""Steering: a prompt that goes into the turn that runs, between its tool calls, instead of waiting.

In the journal it is a turn like others, and is sent once: `dispatched` is committed before it leaves.
Its worker says when the running turn has taken it up, and its message is logged there; the two end
together. If the running turn ends before, the worker goes on with it as a turn of its own.
"""

from __future__ import annotations

from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StoreClosed
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.turns import Turn, TurnState
from pykoclaw_acp.sessions.ports import Journal, Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.sessions.turns.endings import Endings
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.sessions.turns.runner import TurnRunner
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate

INJECTED: Final = "injected"  # it went into the turn that ran
WAITED: Final = "queued"  # it waited for that
NEW: Final = "startedNewTurn"  # none ran

log: Final = structlog.get_logger()


def result(turn: Turn) -> str:
    """What became of a prompt that was to go into the running turn, and has ended."""
    if turn.taken_by is not None:
        return INJECTED
    return WAITED if turn.waited else NEW


class Steering:
    """Gives prompts of one session to the turn that runs."""

    def __init__(
        self,
        state: SessionState,
        journal: Journal,
        workers: Workers,
        *,
        queue: TurnQueue,
        runner: TurnRunner,
        endings: Endings,
        gate: WorkspaceGate,
    ) -> None:
        self._state = state
        self._journal = journal
        self._workers = workers
        self._queue = queue
        self._runner = runner
        self._endings = endings
        self._gate = gate

    def was_given(self, turn: Turn) -> bool:
        """Whether the prompt was given to a running turn, whether that has taken it up or not."""
        return turn.taken_by is not None or turn in self._queue.steered

    async def set(self, *, steers: bool) -> None:
        """Whether the session's prompts go into the running turn unless they say otherwise."""
        await self._journal.set_steering(self._state.id, steers=steers)
        self._state.record.steers = steers

    async def give(self, turn: Turn) -> bool:
        """Give a queued prompt to the turn that runs; False if it has to wait in the queue: none
        runs, Claude has not begun that, it is a slash command, what acts in the directory has
        changed, is trusted no more or cannot be looked at, or the worker is of an earlier version.
        Raises nothing: the journal has it, so that whoever is told of an error would send it again.
        """
        if not await self._may_go_in(turn):
            return False
        self._queue.steer(turn)
        try:
            await self._journal.dispatch(turn, self._state.epoch, ())
        except StoreClosed:
            self._queue.take_back(turn)
            return True  # the next daemon runs it
        except Exception as error:
            log.exception("A prompt could not be steered", action="steering_failed")
            if self._queue.current is turn:  # the queue waits for its end
                await self._endings.finish(turn, outcomes.not_started(turn, error))
                return True
            self._queue.take_back(turn)
            return False
        turn.state, turn.unsaid = TurnState.DISPATCHED, True
        crash_points.reached("turn_steered")
        log.info("Turn steered", action="turn_steered", session=self._state.id, turn=turn.turn_id)
        try:
            await self._runner.send_prompt(turn)
        except StoreClosed:
            pass  # the next daemon sends it
        except Exception as error:
            log.exception("A steered prompt could not be sent", action="steering_failed")
            await self._endings.finish(turn, outcomes.not_started(turn, error))
        if not self._workers.is_live(self._state.id) and not turn.ended.done():
            died = outcomes.lost(turn, ErrorKind.WORKER_LOST, "Claude's worker process died.")
            await self._endings.finish(turn, died)
        return True

    async def _may_go_in(self, turn: Turn) -> bool:
        if not turn.steers:
            return False
        try:
            if not self._takes(turn) or not await self._gate.counts_as_before():
                return False
            return self._takes(turn)  # the look may have taken long
        except StoreClosed:
            return False  # the next daemon runs it
        except Exception:
            log.exception("A prompt cannot be steered now", action="steering_failed")
            return False

    def _takes(self, turn: Turn) -> bool:
        host = self._queue.current
        # Before Claude has begun it, the CLI would take both for one prompt, under one id.
        if host is None or host.cancelled.is_set():
            return False
        if not (host.taken_up or host.state == TurnState.RUNNING):
            return False
        blocks = prompt_text.for_claude(turn.content, remembers=True)
        return prompt_text.command_at(blocks) is None and self._workers.steers(self._state.id)
