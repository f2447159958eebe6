"""A session in this process: the owner of its turns and its log, which decides and orders what its
parts do.

It stands for its conversation, which clients may know under further ids (aliases).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.deliveries import Delivery
from pykoclaw_acp.model.events import OpenTools
from pykoclaw_acp.model.surroundings import House
from pykoclaw_acp.model.turns import STARTED, SessionRecord, Turn, TurnTimes
from pykoclaw_acp.sessions.choosing import Choosing
from pykoclaw_acp.sessions.directories import Directories
from pykoclaw_acp.sessions.limit_waiting import LimitWaiting
from pykoclaw_acp.sessions.next_worker import NextWorker
from pykoclaw_acp.sessions.other_programs import OtherPrograms, RowsOnly
from pykoclaw_acp.sessions.parking import Parking
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.ports import (
    Client,
    DeliveryStore,
    Journal,
    Transcripts,
    TurnLocks,
    Workers,
    Workspaces,
)
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.surroundings import SessionSurroundings
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.sessions.turns.background import BackgroundTurns
from pykoclaw_acp.sessions.turns.deduplication import Deduplication
from pykoclaw_acp.sessions.turns.endings import Endings
from pykoclaw_acp.sessions.turns.intake import Intake
from pykoclaw_acp.sessions.turns.queue import AllWaiting, TurnQueue
from pykoclaw_acp.sessions.turns.runner import TurnRunner
from pykoclaw_acp.sessions.turns.steering import Steering
from pykoclaw_acp.sessions.turns.titling import Titling
from pykoclaw_acp.sessions.turns.unclaimed import Unclaimed
from pykoclaw_acp.sessions.worker_reports import WorkerReports
from pykoclaw_acp.sessions.worker_requests import WorkerRequests
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class Session:
    """Runs the session's turns one at a time, in the order of their prompts, on one worker."""

    def __init__(
        self,
        record: SessionRecord,
        options: WorkerOptions,
        journal: Journal,
        workers: Workers,
        times: TurnTimes,
        *,
        house: House | None = None,
        workspaces: Workspaces | None = None,
        transcripts: Transcripts | None = None,
        locks: TurnLocks | None = None,
        all_waiting: AllWaiting,
    ) -> None:
        self.id = record.session_id
        self.record = record
        self._state = state = SessionState(record, options, journal)
        self.log = state.log
        self.subscriptions = state.subscriptions
        self._journal = journal
        self._workers = workers
        self._tasks = Tasks()
        self._background = BackgroundTurns(state, workers)
        self.requests = WorkerRequests(state, workers)
        self.limit_wait = LimitWaiting(state, journal)
        self._titling = Titling(state, self.requests.make_title)
        self.permissions = Broker(
            state, journal, workers, times,
            park=lambda request: self.parking.park(request),  # noqa: PLW0108  made later
            claim=self.claim, enqueue=self.enqueue,
        )  # fmt: skip
        self.unclaimed = Unclaimed(record, times.rejoin_window)
        self.others = OtherPrograms(
            state, journal, workers, transcripts or RowsOnly(), self._unfinished, locks=locks,
            policy=times.lost_context,
        )  # fmt: skip
        self.next_worker = NextWorker(
            state, journal, workers, lambda: self.busy or self.background, self.others.outdate
        )
        self.choosing = Choosing(state, journal, workers, self.next_worker.change)
        directories = Directories(state, workers, house or House())
        self.surroundings = SessionSurroundings(state, workers, house or House(), journal.clock)
        gate = WorkspaceGate(state, journal, workers, self.permissions, workspaces)
        self._endings = Endings(state, journal, gate)
        self.runner = TurnRunner(
            state, journal, workers, times.cancel_grace,
            unclaimed=self.unclaimed, gate=gate, endings=self._endings,
            choosing=self.choosing, surroundings=self.surroundings, titling=self._titling,
            look=lambda: directories.after(self.others.before_prompt(self._background.over)),
            is_with_claude=self.others.has_prompt, unlock=self.others.unlock, lost=self.others.context.lost,
            before_early=lambda: self.others.before_early_start(directories.note),
        )  # fmt: skip
        self.next_worker.end = self.runner.early.end
        self._queue = TurnQueue(self.id, self.runner.run, self._rest, all_waiting, self._hold_lock)
        self.steering = Steering(
            state, journal, workers, self._queue, send=self.runner.send_prompt, finish=self._endings.finish,
        )  # fmt: skip
        self.parking = Parking(
            state, journal, workers, queue=self._queue, runner=self.runner, background=self._background,
            cancel=self.cancel,
        )  # fmt: skip
        self.reports = WorkerReports(
            state, journal, workers, queue=self._queue, runner=self.runner, endings=self._endings,
            background=self._background, permissions=self.permissions, choosing=self.choosing,
            others=self.others, rest=self.next_worker.rest, usage_limit=times.usage_limit,
        )  # fmt: skip
        self.deduplication = Deduplication(record, journal, lambda: self.turns, times.rejoin_window)
        self.intake = Intake(record, self.deduplication, self.unclaimed, self._queue, self.submit)

    @property
    def options(self) -> WorkerOptions:
        """What its next worker is launched with."""
        return self._state.options

    @property
    def last_seq(self) -> int:
        """The newest event's place in the log."""
        return self._state.last_seq

    def subscribe(
        self, client: Client, after: int, number: int = 0, hold: float = 0, session_id: str = ""
    ) -> Subscription:
        """Deliver what follows `after` to this client, from now on; the rest as in Subscription."""
        after = max(after, self.record.pruned_upto)
        subscription = Subscription(
            session_id or self.id,
            self.log,
            client,
            after,
            self._unsubscribe,
            number=number,
            hold=hold,
        )
        self.subscriptions.append(subscription)
        self.others.attend(attended=True)
        self.permissions.add_client(subscription)
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
            self.others.attend(attended=bool(self.subscriptions))
            self.permissions.away.start_clocks()
            self._save_memory()

    # --- turns

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self._queue.busy

    @property
    def dormant(self) -> bool:
        """Whether nobody has to do with it now, and all of it is in the database."""
        held = self.subscriptions or self.busy or self._background or self._tasks or self.parking
        return (
            not (held or self.intake or self.reports or self._titling)
            and not self.others
            and not self.permissions.pending_ids
            and not self.deduplication.expects_resends
        )

    @property
    def background(self) -> bool:
        """Whether a turn runs that Claude began by itself."""
        return bool(self._background)

    def _save_memory(self) -> None:
        if not self.subscriptions and not self.busy:
            self.log.forget()

    @property
    def turns(self) -> list[Turn]:
        """Those that run, wait, or have ended without the journal knowing it yet."""
        queued = self._queue.turns
        return [*queued, *(turn for turn in self._endings.ending.values() if turn not in queued)]

    def _unfinished(self) -> set[str]:
        """Ids of the turns that Claude was given, or has begun by itself, and that have not ended."""
        return {turn.turn_id for turn in self.turns if turn.state in STARTED}.union(
            self._background
        )

    def untold(self, turn_ids: set[str]) -> set[str]:
        """Which of these turns have messages that are not in the log yet."""
        return {one.turn_id for one in self.turns if one.untold and one.turn_id in turn_ids}

    def mark_answered(self, turn: Turn) -> None:
        """Note that a client has the turn's response."""
        self._tasks.start(self.deduplication.mark_answered(turn))

    def mark_request_answered(self, request_key: str) -> None:
        """Note that a client has the response to this request, maybe of an earlier daemon's turn."""
        self._tasks.start(self.deduplication.mark_request_answered(request_key))

    async def submit(self, turn: Turn) -> None:
        """Accept a prompt: when this returns it is in the journal, and it will run."""
        turn.waited = self._queue.busy
        turn.begun = not turn.waited  # at once: no commit of its own says so
        await self._journal.accept(turn)
        helper = turn.aside or turn.helper
        self.record.auxiliary = helper and (self.record.auxiliary or not self.record.prompted)
        self.record.prompted = True
        self.deduplication.note_prompt()
        crash_points.reached("turn_queued")
        if turn.cancelled.is_set():
            await self._endings.finish(turn, outcomes.CANCELLED)
            return
        if not await self.steering.give(turn):
            self.enqueue(turn)

    def enqueue(self, turn: Turn) -> None:
        """Run a turn that is in the journal as `queued`."""
        log.info("Turn queued", action="turn_queued", session=self.id, turn=turn.turn_id)
        self._queue.add(turn)

    def cancel(
        self, turn: Turn | None = None, until: int | None = None, request: str | None = None
    ) -> list[asyncio.Task[None]]:
        """Stop this turn, or all that run or wait: each ends `cancelled`.

        `until` (ms, own clock) spares turns that came later, and all that Claude began under this
        daemon: a front repeats a cancel that was not confirmed, and `request` is its key. What is
        returned is done when the cancel outlives this daemon.
        """
        leaving: list[asyncio.Task[None]] = []
        for one in self.turns if turn is None else [turn]:
            if one.ended.done() or (until is not None and one.came_after(until, request)):
                continue
            if one.cancelled.is_set():
                leaving.append(self._tasks.start(one.over()))
                continue
            one.cancelled.set()
            log.info("Turn cancelled", action="turn_cancelled", session=self.id, turn=one.turn_id)
            if one is self._queue.current or one in self._queue.steered:
                leaving.append(self._tasks.start(self.runner.stop(one)))
            elif self._queue.remove(one):
                ending = self._endings.cancel_waiting(one, self._queue.current)
                leaving.append(self._tasks.start(ending))
        every = () if turn is not None else self._background.begun(until)
        return leaving + [self._tasks.start(self._background.stop(one)) for one in every]

    async def idle(self) -> None:
        """Wait until no turn runs or waits."""
        await self._queue.idle()

    @contextlib.asynccontextmanager
    async def between_turns(self) -> AsyncIterator[None]:
        """Wait until no turn runs; none begins meanwhile."""
        with self._queue.hold():
            while (turn := self._queue.current) is not None or self._background:
                await (self._background.over() if turn is None else turn.over())
            yield

    async def receive(
        self, delivery: Delivery, store: DeliveryStore, *, known: bool = False
    ) -> None:
        """Show a message that another program delivers, unless it is `known`; raises as
        `DeliveryStore.deliver`.
        """
        seqs, events = await store.deliver(self.id, delivery, known=known)
        crash_points.reached("delivery_committed")
        if events:
            self.record.prompted, self.record.auxiliary = True, False
            self.log.committed(seqs, None, events)
            self._save_memory()

    async def suspend(self) -> None:
        """Leave the turns as they are, for the next daemon, and begin none any more."""
        turns = self.turns
        await self._queue.suspend()
        await self.runner.suspend(turns)

    def pause_current(self) -> None:
        """Count the turn that is to run as not being prepared: it waits for room for a worker."""
        if self._queue.current is not None:
            self._tasks.start(self.runner.pause(self._queue.current))

    def adopt(
        self,
        epoch: int,
        given: Sequence[Turn],
        background: Mapping[str, int],
        open_tools: OpenTools,
    ) -> None:
        """Go on with the worker of another daemon: with the turn that it was given, those that went
        to it meanwhile, and those that it began itself, with when (ms, own clock).
        """
        self._state.epoch = epoch
        self.next_worker.note_adopted(epoch)
        self._background.adopt(background)
        self.log.open_tools = open_tools
        for turn_id in self.permissions.away.parked_turns:  # the other daemon may not have said so
            self._tasks.start(self.parking.give_up_worker(turn_id))
        if not given:  # a worker that waits for a first prompt is for nobody any more
            (self._workers.release if self.record.prompted else self._workers.retire)(self.id)
            return
        turn, *steered = given
        for one in given:
            self.deduplication.expect(one)
            one.waited = one is not turn
        self.unclaimed.start_behind(given[-1])
        self._hold_lock(turn)
        self._queue.go_on(turn, steered)

    def _hold_lock(self, turn: Turn) -> None:
        self._tasks.start(self.others.hold_lock(turn))

    def requeue(self, turn: Turn) -> None:
        """Run a prompt that another daemon had accepted and not begun, as soon as somebody stands
        behind it.
        """
        self.deduplication.expect(turn)
        self.unclaimed.add(turn)
        self.enqueue(turn)

    def claim(self, turn_id: str) -> None:
        """Let this prompt run, if it waits for somebody to stand behind it."""
        for turn in self.turns:
            if turn.turn_id == turn_id:
                self.unclaimed.claim(turn)

    def _rest(self) -> None:
        """Free what is not needed while no turn runs or waits."""
        self._save_memory()
        self.others.changed()
        self._workers.release(self.id)
        self.next_worker.rest()
