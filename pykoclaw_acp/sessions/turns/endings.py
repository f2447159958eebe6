"""Ends of turns: in the journal first, then told to those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.errors import Conflict, DamageMet, NoPlaceForEnd, StoreClosed
from pykoclaw_acp.model import notes
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.sessions.ports.journal import TurnsAndNotes
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns import outcomes, titles, titling
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate
from pykoclaw_acp.tasks import Tasks, in_pieces

log: Final = structlog.get_logger()


class Endings:
    """Ends a session's turns, and with `gate` their trust requests."""

    def __init__(
        self, state: SessionState, journal: TurnsAndNotes, queue: TurnQueue, gate: WorkspaceGate
    ) -> None:
        self._state = state
        self._journal = journal
        self._gate = gate
        self._ending = queue.ending
        self._tasks = Tasks()

    async def cancel_waiting(self, turn: Turn, running: Turn | None) -> None:
        """End a prompt that waits for its turn. What the log says of it comes after the turn that is
        `running`, whose answer it would cut in two; if that one is cancelled, too, its end is near,
        and nobody is told of this one's before the log says it.
        """
        if running is None:
            await self.finish(turn, outcomes.CANCELLED)
            return
        if turn.ended.done() or turn.turn_id in self._ending:
            return
        self._ending[turn.turn_id] = turn
        try:
            unsaid = replace(outcomes.CANCELLED, unsaid=True)
            outcome = await self.end(turn.turn_id, unsaid, (), turn.cancelled)
        except StoreClosed:
            log.info("The next daemon ends the turn", action="turn_end_left", turn=turn.turn_id)
            del self._ending[turn.turn_id]
            return
        self.tell_unsaid(turn, outcome, running)

    def tell_unsaid(self, turn: Turn, outcome: Outcome, running: Turn | None) -> None:
        """Tell of a prompt that has ended `unsaid`, as `cancel_waiting` does; the journal has its end."""
        self._ending[turn.turn_id] = turn
        running = None if running is turn else running  # its worker was to go on with it
        if running is None or not running.cancelled.is_set():
            self.resolve(turn, outcome)
        self._tasks.start(self._tell_after(running, turn, outcome))

    def say_later(self, turn: Turn, running: Turn | None) -> None:
        """Say of a prompt whose end an earlier daemon has told that it was cancelled, and what it
        was, once the turn that is `running` has ended.
        """
        self._tasks.start(self._tell_after(running, turn, None))

    async def _tell_after(self, running: Turn | None, turn: Turn, outcome: Outcome | None) -> None:
        words = titles.title(turn.content) or titles.of_content(turn.content) or ""
        note = notes.not_sent(turn.turn_id, turn.stopped_in, words)
        said = [*await in_pieces(outcomes.user_messages(turn)), *note]
        if running is not None:
            await running.over()
        try:
            seqs = await self._journal.say_cancelled(self._state.id, turn.turn_id, said)
            self._state.log.committed(seqs, None, said)
        except (StoreClosed, Conflict):  # the next daemon does; a conflict: the session was deleted
            pass
        finally:
            if outcome is not None and not turn.ended.done():
                self.resolve(turn, outcome)

    async def finish(
        self,
        turn: Turn,
        outcome: Outcome,
        more: Sequence[Event] = (),
        *,
        shown: bool = False,
    ) -> None:
        """End a turn that no worker ends, saying so in the log; nobody is told before the journal
        has it. `shown`: the log has the prompt.
        """
        if turn.ended.done() or turn.turn_id in self._ending:
            return
        self._ending[turn.turn_id] = turn
        try:
            said: list[Event] = []
            if turn.untold and not shown:
                said += await in_pieces(outcomes.user_messages(turn))
                said += titling.first(self._state.record, turn)
            if turn.state == TurnState.QUEUED:
                more = [*self._state.unsaid, *more]
                self._state.unsaid.clear()
                said += await self._gate.ends(turn, more)
            outcome = replace(outcome, told=turn.turn_id in self._state.explained)
            unsent = turn.state == TurnState.QUEUED and outcome == outcomes.CANCELLED
            outcome = replace(outcome, stopped_in=turn.stopped_in)
            last = (
                notes.not_sent(turn.turn_id, turn.stopped_in)
                if unsent
                else notes.ended(turn.turn_id, outcome)
            )
            events = [*said, *more, *last]
            self.resolve(turn, await self.end(turn.turn_id, outcome, events, turn.cancelled))
        except StoreClosed:
            log.info("The next daemon ends the turn", action="turn_end_left", turn=turn.turn_id)
        finally:
            self._ending.pop(turn.turn_id, None)

    async def end(
        self,
        turn_id: str,
        outcome: Outcome,
        events: Sequence[Event],
        cancelled: asyncio.Event | None = None,
    ) -> Outcome:
        """Write down the end of a turn that no worker ends, and show what is said about it; returns
        its end.

        Waits while the store cannot be written. What cannot be said is left out, rather than the
        end: that is tried again until it succeeds or the store is closed, and becomes `cancelled`
        if the turn is that meanwhile.
        """

        async def alone() -> tuple[Outcome, list[int]]:
            last = outcome
            if cancelled is not None and cancelled.is_set():
                last = replace(outcomes.CANCELLED, unsaid=outcome.unsaid)
            where = (self._state.id, turn_id)
            try:
                return await self._journal.finish(*where, last, ())
            except DamageMet:  # the log is damaged
                return await self._journal.finish(*where, last, (), silent=True)

        try:
            try:
                ended, seqs = await self._journal.finish(self._state.id, turn_id, outcome, events)
            except (StoreClosed, NoPlaceForEnd):
                raise
            except Exception:
                log.exception(
                    "A turn's last words could not be recorded", action="turn_end_cut", turn=turn_id
                )
                events = []
                what = "A turn's end could not be recorded"
                ended, seqs = await until_done(alone, what, final=(NoPlaceForEnd,), hurry=cancelled)
        except NoPlaceForEnd:
            log.exception(
                "The journal does not have the turn any more",
                action="turn_end_nowhere",
                turn=turn_id,
            )
            return outcome
        if seqs:
            self._state.log.committed(seqs, turn_id, events)
        return ended

    def resolve(self, turn: Turn, outcome: Outcome) -> None:
        """Tell those who wait for the turn's end, which is in the journal."""
        self._ending.pop(turn.turn_id, None)
        turn.state = outcome.state
        self._gate.drop_request(turn)
        if not turn.ended.done():
            turn.ended.set_result((outcome, self._state.last_seq))
            crash_points.reached("turn_end_committed")
            kind = outcome.failure.kind if outcome.failure else outcome.stop_reason
            log.info(
                "Turn ended",
                action="turn_ended",
                turn=turn.turn_id,
                state=outcome.state,
                reason=kind,
            )
