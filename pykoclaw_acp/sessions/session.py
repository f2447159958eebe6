"""A session in this process: its queue of turns, the end of its log, its clients, its questions.

It stands for its conversation, which clients may know under further ids (aliases).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import AskWithdrawn, EventFrame, Gap, Numbered, Ready, TurnEnded, TurnStarted
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.choices import Offer
from pykoclaw_acp.model.events import Event, OpenTools, TitleChanged, ToolEnded
from pykoclaw_acp.model.notes import failure
from pykoclaw_acp.model.permissions import PermissionRequest, StoredRequest
from pykoclaw_acp.model.turns import Outcome, SessionRecord, Turn, TurnState, TurnTimes
from pykoclaw_acp.sessions.choosing import Choosing
from pykoclaw_acp.sessions.log import SessionLog
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.ports import Client, Journal, Workers, Workspaces
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns import outcomes as endings
from pykoclaw_acp.sessions.turns.deduplication import Joining
from pykoclaw_acp.sessions.turns.queue import AllWaiting, TurnQueue
from pykoclaw_acp.sessions.turns.runner import Running
from pykoclaw_acp.sessions.turns.unclaimed import Unclaimed
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate
from pykoclaw_acp.tasks import Tasks

NOT_OPEN: Final = "The session is not open. Open it with session/load or session/resume."

log: Final = structlog.get_logger()


class Session:
    """The one owner of a session's turns and log. Turns run one at a time, in the order of their prompts."""

    def __init__(
        self,
        record: SessionRecord,
        options: WorkerOptions,
        journal: Journal,
        workers: Workers,
        times: TurnTimes,
        *,
        workspaces: Workspaces | None = None,
        all_waiting: AllWaiting,
    ) -> None:
        self.id = record.session_id
        self.record = record
        self.options = options
        self.subscriptions: list[Subscription] = []
        self._journal = journal
        self._workers = workers
        self.log = SessionLog(record, journal, self._follow)
        self._background: set[str] = set()
        self._worker_outdated = False
        self.giving_up_worker = False  # as soon as the turn whose question was parked has ended
        self.opened = False  # in this daemon: its options are what a client has said, not the database
        self._adopted_epoch: int | None = None
        self._tasks = Tasks()
        self.accepting = asyncio.Lock()  # over all connections, so that a prompt is recognised
        self._running = Running(self, journal, workers, times.cancel_grace)
        self._queue = TurnQueue(self.id, self._running.run, self._give_up_worker, self._rest, all_waiting)
        self.unclaimed = Unclaimed(record, self._queue.adopted_is_over, times.rejoin_window)
        self.joining = Joining(self, journal, times.rejoin_window)
        self.choosing = Choosing(self, journal, workers)
        self.permissions = Broker(self, journal, workers, times)
        self.workspace_gate = WorkspaceGate(self, journal, workers, workspaces)

    # --- clients and log --------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        """The newest event's place in the log."""
        return self.record.last_seq

    def subscribe(
        self, client: Client, after: int, number: int = 0, hold: float = 0, session_id: str = ""
    ) -> Subscription:
        """Deliver everything after `after` to this client, from now on; the rest as in Subscription."""
        after = max(after, self.record.pruned_upto)
        subscription = Subscription(self, client, after, number, hold, session_id=session_id)
        self.subscriptions.append(subscription)
        self.permissions.attached(subscription)
        return subscription

    def queued(self, turn_ids: set[str]) -> set[str]:
        """Which of these turns still wait, so that their messages are not in the log yet."""
        return {turn.turn_id for turn in self._queue.waiting if turn.turn_id in turn_ids}

    def unsubscribe(self, subscription: Subscription) -> None:
        """The client is no longer interested."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
            self.permissions.detached()
            self._save_memory()

    @property
    def attended(self) -> bool:
        """A client is there that can be asked."""
        return any(subscription.alive and subscription.client.present for subscription in self.subscriptions)

    async def tell(self, events: Sequence[Event]) -> None:
        """Write down events that belong to no turn, and show them."""
        await self.log.tell(events)

    def _follow(self, event: Event | None) -> None:
        self.choosing.follow(event)
        if isinstance(event, TitleChanged):
            self.record.title = event.title

    def offered(self, offer: Offer) -> None:
        """The session's worker is ready, and says what Claude offers."""
        self._tasks.start(self.choosing.offered(offer))

    # --- turns ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest worker's."""
        return self._running.epoch

    @property
    def busy(self) -> bool:
        """A turn runs or waits."""
        return self._queue.busy

    @property
    def dormant(self) -> bool:
        """Nobody has to do with it now, and all of it is in the database."""
        held = self.subscriptions or self.busy or self._background or self._tasks
        return not held and not self.permissions.open_ids and not self.joining.expects

    def _save_memory(self) -> None:
        if not self.subscriptions and not self.busy:
            self.log.forget()

    @property
    def turns(self) -> list[Turn]:
        """Those that run, wait, or have ended without the journal knowing it yet."""
        queued = self._queue.turns
        return [*queued, *(turn for turn in self._running.ending.values() if turn not in queued)]

    async def accept(self, turn: Turn, author: Subscription) -> Turn:
        """The turn that this prompt is: a new one, or the one that it was before if the prompt comes again.

        Raises InvalidParams for an idempotency key that stood at another prompt, InvalidRequest if the session was
        closed in the meantime, Overloaded if too much waits already. A call that is given up on the way leaves the turn
        to run without it.
        """
        accepting = self._tasks.start(self._accept(turn, author))
        try:
            return await asyncio.shield(accepting)
        except asyncio.CancelledError:
            accepting.add_done_callback(self._accepted_for_nobody)
            raise

    async def _accept(self, turn: Turn, author: Subscription) -> Turn:
        async with self.accepting:
            known = await self.joining.find(turn.keys, turn.client or "") or turn
            if known is turn and (self.record.closed or self.record.cwd is None):
                raise InvalidRequest(NOT_OPEN)
            if known is turn:
                self._queue.require_room(turn)
            author.own.add(known.turn_id)
            if known is turn:
                self.unclaimed.passed_over(turn)
                await self.submit(turn)
            self.joining.wait(known)
            self.unclaimed.claim(known)
        return known

    def _accepted_for_nobody(self, accepting: asyncio.Task[Turn]) -> None:
        if not accepting.cancelled() and accepting.exception() is None:
            self.joining.lose(accepting.result())

    def answered(self, turn: Turn) -> None:
        """A client has got the turn's response."""
        self._tasks.start(self.joining.answered(turn))

    def answered_before(self, request_key: str) -> None:
        """A client has got the response of a turn that an earlier daemon had ended, if this request was one."""
        self._tasks.start(self.joining.answered_before(request_key))

    async def submit(self, turn: Turn) -> None:
        """Accept a prompt: when this returns it is in the journal, and it will run."""
        turn.begun = not self._queue.busy  # at once: no commit of its own says so
        await self._journal.accept(turn)
        helper = prompt_text.by_client_itself(turn.content, turn.client)
        self.record.auxiliary = helper and (self.record.auxiliary or not self.record.prompted)
        self.record.prompted = True
        self.joining.prompted()
        crash_points.reached("turn_queued")
        if turn.cancelled.is_set():
            await self._running.finish(turn, endings.CANCELLED)
            return
        self.enqueue(turn)

    def enqueue(self, turn: Turn) -> None:
        """Run a turn that is in the journal as `queued`."""
        log.info("Turn queued", action="turn_queued", session=self.id, turn=turn.turn_id)
        self._queue.add(turn)

    def cancel(
        self, turn: Turn | None = None, until: int | None = None, request: str | None = None
    ) -> list[asyncio.Task[None]]:
        """Stop this turn, or all that run or wait: each ends `cancelled`.

        `until` (ms, own clock) spares turns that came later: a front repeats a cancel that was not confirmed, and
        `request` is its key. What is returned is done when the cancel outlives this daemon.
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
            if one is self._queue.current:
                leaving.append(self._tasks.start(self._running.stop(one)))
            elif self._queue.remove(one):
                leaving.append(self._tasks.start(self._running.finish(one, endings.CANCELLED)))
        background = self._background if turn is None and until is None else ()
        return leaving + [self._tasks.start(self._running.stop_background(turn_id)) for turn_id in background]

    async def idle(self) -> None:
        """Wait until no turn runs or waits."""
        await self._queue.idle()

    async def suspend(self) -> None:
        """Leave the turns as they are, for the next daemon, and begin none any more."""
        turns = self.turns
        await self._queue.suspend()
        for turn in turns:
            await self._running.pause(turn)

    def waits_for_worker(self) -> None:
        """The turn that is to run waits until there is room for a worker, or until the user has answered."""
        if self._queue.current is not None:
            self._tasks.start(self._running.pause(self._queue.current))

    def adopt(self, epoch: int, turn: Turn | None, background: Collection[str], open_tools: OpenTools) -> None:
        """Go on with the worker of another daemon: with the turn that it was given, and those that it began itself."""
        self._running.epoch = self._adopted_epoch = epoch
        self._background.update(background)
        self.log.open_tools = open_tools
        if turn is None:
            self._workers.release(self.id)
            return
        self.joining.remember(turn)
        self._queue.go_on(turn)
        self.permissions.adopted(turn.turn_id)

    def requeue(self, turn: Turn) -> None:
        """Run a prompt that another daemon had accepted and not begun, as soon as somebody stands behind it."""
        self.joining.remember(turn)
        self.unclaimed.add(turn)
        self.enqueue(turn)

    def claim(self, turn_id: str) -> None:
        """Somebody stands behind this prompt, if it waits for that."""
        for turn in self.turns:
            if turn.turn_id == turn_id:
                self.unclaimed.claim(turn)

    async def adopted(self, ready: Ready, *, foreign: bool) -> None:
        """The adopted worker answers: it is given what the other daemon could not give it any more."""
        await self.choosing.settle(ready)
        await self.permissions.settle_restored(ready.asks)
        turn = self._queue.current
        if turn is not None and turn.state == TurnState.DISPATCHED and turn.turn_id != ready.turn_id:
            # The worker has read all that the other daemon wrote: this prompt never left.
            if turn.cancelled.is_set():
                await self._running.finish(turn, endings.CANCELLED)
            elif foreign:
                await self._running.finish(turn, endings.not_begun())
            else:
                await self._running.send_prompt(turn)
        if turn is not None and turn.cancelled.is_set() and not turn.ended.done():
            self._tasks.start(self._running.stop(turn))  # it was cancelled before there was a way to say so
        with contextlib.suppress(ConnectionError):
            for one in await self._journal.settled(ready.asks):
                await self._workers.send(self.id, decisions.stored(self._running.epoch, one))

    def _rest(self) -> None:
        """No turn runs or waits."""
        self._save_memory()
        self._workers.release(self.id)
        if self._worker_outdated or self.record.auxiliary:  # a client's own helper: nobody comes back to it
            self._worker_outdated = False
            self._workers.retire(self.id)

    def _give_up_worker(self) -> None:
        """The turn whose question was parked has ended: others may have its worker, also before the next turn."""
        if self.giving_up_worker:
            self.giving_up_worker = False
            self._workers.release(self.id)
            self._workers.evict(self.id)

    # --- questions --------------------------------------------------------------------------------------------------

    def restore_questions(self, epoch: int, rows: Sequence[StoredRequest]) -> None:
        """Open questions of another daemon's time, from `Journal.questions`, are open again.

        `epoch` is that of the adopted worker; any number where there is no worker.
        """
        self.permissions.restore(epoch, rows)

    async def park(self, request: PermissionRequest, said: Sequence[Event]) -> None:
        """A question gives up its worker: its row waits on, its turn ends `cancelled`, and the log says why."""
        self.log.committed(await self._journal.park(self.id, request, said), request.turn_id, said)
        self.stop_for_parked(request.turn_id)

    def stop_for_parked(self, turn_id: str) -> None:
        """A question of this turn was parked: stop it, if it runs."""
        if turn := self._queue.running(turn_id):
            self.giving_up_worker = True
            self.cancel(turn)
        elif turn_id in self._background:
            self._tasks.start(self._running.stop_background(turn_id))

    def told_options(self, options: WorkerOptions) -> None:
        """A front came back and says how its client opened the session; an adopted worker was launched so."""
        if self.opened:
            return
        self.opened = True
        if options != self.options and self._running.epoch != self._adopted_epoch and self._workers.is_live(self.id):
            self.change_worker(options)
        else:
            self.options = options

    def change_worker(self, options: WorkerOptions) -> None:
        """From the next worker on; the one that there is ends as soon as nothing runs on it."""
        self.options = options
        if self.busy:
            self._worker_outdated = True
        else:
            self._workers.retire(self.id)

    # --- from the worker --------------------------------------------------------------------------------------------

    async def frames(self, epoch: int, frames: Sequence[Numbered]) -> None:
        """Commit a worker's frames, then tell everybody."""
        outcomes: dict[str, Outcome] = {}
        for frame in frames:
            if isinstance(frame, TurnEnded):
                turn = self._queue.running(frame.turn_id)
                outcomes[frame.turn_id] = endings.of_frame(frame, cancelled=bool(turn and turn.cancelled.is_set()))
        logged = await self._journal.record(self.id, epoch, frames, outcomes)
        self.log.publish(logged)
        for frame in frames:
            if isinstance(frame, EventFrame | Gap) and frame.turn_id and (turn := self._queue.running(frame.turn_id)):
                turn.spoke = True
            elif isinstance(frame, PermissionRequest):
                self.permissions.open(epoch, frame, self.last_seq)
            elif isinstance(frame, AskWithdrawn):
                self.permissions.withdraw(frame.ask_id)
            elif isinstance(frame, TurnStarted) and frame.background:
                self._running.epoch = epoch
                self._background.add(frame.turn_id)
        for turn_id, outcome in outcomes.items():
            self._background.discard(turn_id)
            self.record.claude_session_id = outcome.claude_session_id
            self._workers.set_resume(self.id, outcome.claude_session_id)
            if turn := self._queue.running(turn_id):
                self._running.resolve(turn, outcome)

    async def lost(self, epoch: int, kind: str, message: str) -> None:
        """The worker is gone: what it was doing ends now, in words. After an error it may be called again."""
        closed: list[Event] = [ToolEnded(tool, "failed") for tool in self.log.open_tools]
        turn = self._queue.current
        if turn is not None and turn.state != TurnState.QUEUED and epoch == self._running.epoch:
            await self._running.finish(turn, endings.lost(turn, kind, message), closed)
            closed = []
        for turn_id in list(self._background):
            outcome = endings.background_lost(message)
            await self._running.end(turn_id, outcome, [*closed, *failure(turn_id, outcome)])
            self._background.discard(turn_id)
            closed = []
        if closed:
            await self.log.tell(closed, patient=True)
        await self.permissions.withdraw_all()
