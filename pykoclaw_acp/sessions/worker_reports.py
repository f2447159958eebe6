"""What a session's worker reports: written down, then acted upon."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from pykoclaw_acp.channel.frames import (
    AskWithdrawn,
    EventFrame,
    Gap,
    Numbered,
    Ready,
    TurnEnded,
    TurnStarted,
)
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model import notes
from pykoclaw_acp.model.choices import Offer
from pykoclaw_acp.model.events import (
    ConfigChanged,
    Event,
    ModeChanged,
    TextPart,
    ToolEnded,
    UserMessage,
)
from pykoclaw_acp.model.failures import AUTHENTICATION
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.refused import refused_in
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.sessions import worker_options
from pykoclaw_acp.sessions.background import BackgroundTurns
from pykoclaw_acp.sessions.choosing import Choosing
from pykoclaw_acp.sessions.next_worker import NextWorker
from pykoclaw_acp.sessions.other_programs import OtherPrograms
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.ports import Journal, Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns import limits, outcomes
from pykoclaw_acp.sessions.turns.endings import Endings
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.sessions.turns.runner import TurnRunner
from pykoclaw_acp.tasks import Tasks
from pykoclaw_acp.translation.tools import asked_input

CLOSED: Final = "The session was closed."


class WorkerReports:
    """Takes the frames of one session's worker, that it is ready, and that it is gone."""

    def __init__(
        self,
        state: SessionState,
        journal: Journal,
        workers: Workers,
        *,
        queue: TurnQueue,
        runner: TurnRunner,
        endings: Endings,
        background: BackgroundTurns,
        permissions: Broker,
        choosing: Choosing,
        others: OtherPrograms,
        next_worker: NextWorker,
        usage_limit: str,
    ) -> None:
        self._state = state
        self._journal = journal
        self._workers = workers
        self._queue = queue
        self._runner = runner
        self._endings = endings
        self._background = background
        self._permissions = permissions
        self._choosing = choosing
        self._others = others
        self._next_worker = next_worker
        self._usage_limit = usage_limit
        self._tasks = Tasks()
        self.hangs = False  # the worker says that Claude's process does not answer in its turn

    def __bool__(self) -> bool:
        """Whether something that a report caused goes on."""
        return bool(self._tasks)

    def keep_offer(self, offer: Offer, *, starts: bool) -> None:
        """Store what the worker offers, as it starts or later."""
        self._tasks.start(self._choosing.keep_offer(offer, starts=starts))

    async def frames(self, epoch: int, frames: Sequence[Numbered]) -> list[PendingRequest]:
        """Commit a worker's frames, then tell everybody. Returns what it asks."""
        asked: list[PendingRequest] = []
        frames = [self._offered(one) for one in frames]
        ends = self._ends(frames)
        self._state.log.publish(await self._journal.record(self._state.id, epoch, frames, ends))
        for frame in frames:
            if isinstance(frame, PermissionRequest):
                asked.append(self._ask(epoch, frame))
            self._act(epoch, frame)
            if isinstance(frame, TurnEnded):
                self._workers.note_ended(self._state.id, frame)
        if any(self._is_forbidden(frame) for frame in frames):
            self._tasks.start(self._choosing.take_back())
        for turn_id, outcome in ends.items():
            self._end_background(turn_id)
            self._state.record.claude_session_id = outcome.claude_session_id
            self._state.record.branch = None
            self._workers.set_resume(self._state.id, outcome.claude_session_id)
            if turn := self._queue.running(turn_id):
                if outcome.unsaid:
                    self._endings.tell_unsaid(turn, outcome, self._queue.current)
                else:
                    self._endings.resolve(turn, outcome)
        if any(one.failure and one.failure.kind in AUTHENTICATION for one in ends.values()):
            self._retire_unless_used()  # the next one reads what a login has written
        return [one for one in asked if not one.withdrawn]

    def _retire_unless_used(self) -> None:
        """End the worker; if it has another turn, or one is about to be given to it, before the next
        prompt.
        """
        if self._background or self._queue.uses_worker:
            self._state.superseded = True
        else:
            self._workers.retire(self._state.id)

    def _offered(self, frame: Numbered) -> Numbered:
        if isinstance(frame, PermissionRequest):
            return decisions.still_offered(frame, self._state.record.options)
        if isinstance(frame, EventFrame) and isinstance(frame.event, ToolEnded):
            return self._named(frame, frame.event)
        return frame

    def _named(self, frame: EventFrame, ended: ToolEnded) -> EventFrame:
        """The end of a call, with the client that has refused it, if that is to be said."""
        if (by := self._state.refusals.get(ended.tool_call_id)) is None:
            return frame
        turn = self._queue.running(frame.turn_id or "")
        if not (place := self._state.acted_in(by, turn.client if turn else None)):
            return frame
        content = tuple(
            msgspec.structs.replace(part, text=refused_in(place, part.text))
            if isinstance(part, TextPart) and not part.beside
            else part
            for part in ended.content
        )
        return msgspec.structs.replace(frame, event=msgspec.structs.replace(ended, content=content))

    def _is_forbidden(self, frame: Numbered) -> bool:
        """Whether Claude reports a mode that a client has forbidden since its worker was launched."""
        event = frame.event if isinstance(frame, EventFrame) else None
        if isinstance(event, ModeChanged):
            mode = event.mode
        elif isinstance(event, ConfigChanged):
            mode = event.selection.mode
        else:
            return False
        return worker_options.allowed(mode, self._state.record.options) != mode

    def _ends(self, frames: Sequence[Numbered]) -> dict[str, Outcome]:
        ends: dict[str, Outcome] = {}
        said = outcomes.said_in(frames)
        begun = [one.turn_id for one in frames if isinstance(one, TurnStarted) and one.background]
        own = {*begun, *self._background}.difference(self._background.stopped)
        for frame in frames:
            if isinstance(frame, TurnEnded):
                turn = self._queue.running(frame.turn_id)
                outcome = outcomes.of_turn(frame, turn, said)
                told = outcome.told or frame.turn_id in self._state.explained
                stopped_in = turn.stopped_in if turn is not None else ""
                outcome = replace(outcome, told=told, stopped_in=stopped_in)
                steered = frame.into is not None
                ends[frame.turn_id] = limits.told(
                    outcome,
                    None if steered else turn,
                    self._usage_limit,
                    own=self._state.id if frame.turn_id in own else "",
                    auxiliary=self._state.record.auxiliary,
                )
        return ends

    def _act(self, epoch: int, frame: Numbered) -> None:
        if isinstance(frame, EventFrame) and isinstance(frame.event, ModeChanged | ConfigChanged):
            self._choosing.note_reported(frame.event)
        elif isinstance(frame, EventFrame) and isinstance(frame.event, ToolEnded):
            self._state.refusals.pop(frame.event.tool_call_id, None)
        if (
            isinstance(frame, EventFrame | Gap)
            and frame.turn_id
            and (turn := self._queue.running(frame.turn_id))
        ):
            turn.spoke, turn.unsaid = turn.spoke or _speaks(frame), False
        elif isinstance(frame, TurnStarted) and (turn := self._queue.running(frame.turn_id)):
            turn.taken_up = True
            if frame.into is not None:
                turn.taken_by, turn.unsaid, turn.spoke = frame.into, False, True
        elif isinstance(frame, AskWithdrawn):
            self._permissions.withdraw(frame.ask_id)
        elif isinstance(frame, TurnStarted) and frame.background:
            self._state.epoch = epoch
            self._background.begin(frame.turn_id)

    def _ask(self, epoch: int, frame: PermissionRequest) -> PendingRequest:
        self._state.log.open_tools.ask(frame.tool_call_id, asked_input(frame.input))
        return self._permissions.open(epoch, frame, self._state.last_seq)

    def _end_background(self, turn_id: str) -> None:
        if turn_id in self._background:
            self._background.end(turn_id)
            self._others.changed()
            self._next_worker.rest()

    async def lost(self, epoch: int, kind: ErrorKind, message: str) -> None:
        """The worker is gone: what it was doing ends now, in words. After an error it may be called
        again.
        """
        why = CLOSED if self._state.record.closed else message
        closed = self._state.log.open_tools.failed(outcomes.cut_off(why))
        ends = (
            (turn, outcomes.lost(turn, kind, message))
            for turn in self._queue.given
            if epoch == self._state.epoch
        )
        await self._end(ends, self._background, outcomes.background_lost(message), closed)
        await self._permissions.interrupt_all()
        self._state.refusals.clear()

    async def _end(
        self,
        given: Iterable[tuple[Turn, Outcome]],
        background: Iterable[str],
        outcome: Outcome,
        closed: list[Event],
    ) -> None:
        """End turns that the worker does not end, those that Claude began by itself with `outcome`;
        the first says how its tool calls ended.
        """
        for turn, its_outcome in given:
            if not turn.ended.done():
                await self._endings.finish(turn, its_outcome, closed)
                closed = []
        for turn_id in background:
            await self._endings.end(turn_id, outcome, [*closed, *notes.ended(turn_id, outcome)])
            self._end_background(turn_id)
            closed = []
        if closed:
            await self._state.log.tell(closed, patient=True)

    async def catch_up(self, ready: Ready, *, foreign: bool) -> None:
        """Give the adopted worker, which has answered, what the other daemon could not give it any
        more.
        """
        await self._choosing.bring_up_to_date(ready)
        await self._permissions.interrupt_orphans(ready.asks)
        if ready.running is not None:
            await self._end_all_but({*ready.running, *ready.steered}, ready)
        known = {ready.turn_id, *ready.steered}
        for turn in self._queue.given:
            if turn.state == TurnState.DISPATCHED and turn.turn_id not in known:
                # The worker has read all that the other daemon wrote: this prompt never left.
                if turn.cancelled.is_set():
                    await self._endings.finish(turn, outcomes.CANCELLED)
                elif foreign:
                    await self._endings.finish(turn, outcomes.not_begun(turn))
                else:
                    await self._runner.send_prompt(turn)
            if turn.cancelled.is_set() and not turn.ended.done():
                # It was cancelled before there was a way to say so.
                self._tasks.start(self._runner.stop(turn))
        for turn_id in self._background.stopped:
            self._tasks.start(self._background.stop(turn_id))
        with contextlib.suppress(ConnectionError):
            for one in await until_done(
                lambda: self._journal.find_settled(ready.asks),
                "Answers that a worker may have missed could not be read",
                after=StoreUnavailable,
            ):
                await self._workers.send(
                    self._state.id, decisions.stored_to_worker(self._state.epoch, one)
                )

    async def _end_all_but(self, running: set[str], ready: Ready) -> None:
        """End turns that the worker has ended: the frame that said so was in a damaged spool."""
        closed: list[Event] = []
        if not running and not ready.background:
            closed = self._state.log.open_tools.failed(outcomes.END_MISSING)
        taken = (
            turn
            for turn in self._queue.given
            if turn.state == TurnState.RUNNING or turn.turn_id == ready.turn_id
        )
        ends = ((turn, outcomes.end_missing(turn)) for turn in taken if turn.turn_id not in running)
        background = [one for one in self._background if one not in running]
        await self._end(ends, background, outcomes.end_missing(), closed)


def _speaks(frame: EventFrame | Gap) -> bool:
    """Whether it is a part of an answer."""
    return isinstance(frame, Gap) or not isinstance(frame.event, UserMessage)
