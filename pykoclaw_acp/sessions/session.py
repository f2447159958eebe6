"""A session in this process: it has turns and a log, and decides and orders what its parts do.

It stands for its conversation, which clients may know under further ids (aliases).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import structlog

from pykoclaw_acp import crash_points, on_behalf
from pykoclaw_acp.channel.frames import Numbered
from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.model.deliveries import Delivery, ImportedDelivery
from pykoclaw_acp.model.events import OpenTools
from pykoclaw_acp.model.permissions import StoredRequest
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.parts import SessionParts
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.permissions.settled import Settled
from pykoclaw_acp.sessions.ports import Client, DeliveryStore
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns import outcomes

log: Final = structlog.get_logger()


class Session(SessionParts):
    """Runs the session's turns one at a time, in the order of their prompts, on one worker."""

    found = 0.0
    """When somebody last looked for it; s, monotonic."""
    suspended = False
    """Whether no turn begins any more, as the next daemon runs them."""

    def subscribe(
        self, client: Client, after: int, number: int = 0, hold: float = 0, session_id: str = ""
    ) -> Subscription:
        """Deliver what follows `after` to this client, from now on; the rest as in Subscription."""
        after = max(after, self.record.pruned_upto)
        subscription = Subscription(
            session_id or self.id, self.log, client, after, self._unsubscribe,
            number=number, hold=hold,
        )  # fmt: skip
        self.subscriptions.append(subscription)
        self.others.attend(attended=True)
        self._workers.attend(self.id, attended=True)
        self.permissions.add_client(subscription)
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
            self.others.attend(attended=bool(self.subscriptions))
            self._workers.attend(self.id, attended=bool(self.subscriptions))
            self.permissions.away.start_clocks()
            self._save_memory()

    # --- turns

    @property
    def dormant(self) -> bool:
        """Whether nobody has to do with it now, and all of it is in the database."""
        held = self.subscriptions or self.busy or self._background or self._tasks or self.parking
        return (
            not (held or self.intake or self.reports or self._titling)
            and not (self.intake.lock.locked() or self._queue.held or self.others)
            and not self.permissions.pending_ids
            and not self.deduplication.expects_resends
        )

    def _save_memory(self) -> None:
        if not self.subscriptions and not self.busy:
            self.log.forget()

    def mark_answered(self, turn: Turn) -> None:
        """Note that a client has the turn's response."""
        self._tasks.start(self.deduplication.mark_answered(turn))

    def mark_request_answered(self, request_key: str) -> None:
        """Note that a client has the response to this request, maybe of an earlier daemon's turn."""
        self._tasks.start(self.deduplication.mark_request_answered(request_key))

    async def accept(self, turn: Turn, author: Subscription, *, joins: bool = False) -> Turn:
        """Accept a prompt and return its turn: a new one, or the existing turn if the prompt was
        re-sent. `joins`: an earlier daemon had taken it. Raises TurnFailed if it were new and must
        not, InvalidParams for an idempotency key of another prompt or one that is too long,
        InvalidRequest if the session was closed in the meantime, Overloaded if too much waits.
        """
        return await self.intake.finish(self._accept(turn, author, joins=joins))

    async def _accept(self, turn: Turn, author: Subscription, *, joins: bool) -> Turn:
        async with self.intake.recognised(turn, author, joins=joins) as known:
            if known is turn:
                await self.submit(turn)
            elif self.intake.is_forgotten(known):
                self.enqueue(known)
        return known

    async def accept_unattended(self, turn: Turn) -> Turn:
        """Accept a prompt that runs whoever is there, also in a closed session; the turn that it
        was before, if it comes again.

        Raises InvalidParams for an idempotency key that stood at another prompt or a prompt that is
        too long, Overloaded, and SessionNotFound if the session is being deleted.
        """
        return await self._tasks.finish(self._accept_unattended(turn))

    async def _accept_unattended(self, turn: Turn) -> Turn:
        async with self.intake.recognised_unattended(turn) as known:
            if known is turn:
                await self.submit(turn)
        return known

    async def submit(self, turn: Turn) -> None:
        """Accept a prompt: when this returns it is in the journal, and it will run."""
        turn.waited = self.busy
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
        self._queue.add(turn)
        if not self.busy and not self.suspended:
            self._start_turns()
        log.info("Turn queued", action="turn_queued", session=self.id, turn=turn.turn_id)

    def _start_turns(self) -> None:
        running = self._run_turns()
        self._state.running = asyncio.get_running_loop().create_task(running, name="run-turns")

    async def _run_turns(self) -> None:
        """Run one turn after the other, behind the one that another daemon's worker has, and rest."""
        on_behalf.of_session(self.id)
        try:
            if (adopted := self._queue.current) is not None:
                await adopted.over()
            while (turn := await self._queue.next()) is not None:
                if turn in self._queue.steered:  # the worker goes on with it by itself
                    if not turn.ended.done():
                        self._hold_lock(turn)
                        await turn.over()
                    continue
                with structlog.contextvars.bound_contextvars(session=self.id, turn=turn.turn_id):
                    await self.runner.run(turn)
        finally:
            self._queue.current = None
            self._state.running = None
        self._rest()

    def cancel(
        self, turn: Turn | None = None, until: int | None = None, request: str | None = None, *,
        by: str = "",
    ) -> list[asyncio.Task[None]]:  # fmt: skip
        """Stop this turn, or all that run or wait: each ends `cancelled`, and so does a held response.

        `until` (ms, own clock) spares turns that came later, and all that Claude began under this
        daemon: a front repeats a cancel that was not confirmed, and `request` is its key. `by`: the
        client that stops them. What is returned is done when the cancel outlives this daemon.
        """
        leaving: list[asyncio.Task[None]] = []
        for one in self._unanswered(turn):
            if until is not None and one.came_after(until, request):
                continue
            if one.cancelled.is_set() or one.ended.done():
                one.cancelled.set()  # if it has ended, its response is held
                leaving.append(self._tasks.start(one.over()))
                continue
            one.cancelled.set()
            one.stopped_in = self._state.acted_in(by, one.client) if by else ""
            log.info("Turn cancelled", action="turn_cancelled", session=self.id, turn=one.turn_id)
            if one is self._queue.current or one in self._queue.steered:
                leaving.append(self._tasks.start(self.runner.stop(one)))
            elif self._queue.remove(one):
                ending = self._endings.cancel_waiting(one, self._queue.current)
                leaving.append(self._tasks.start(ending))
        every = () if turn is not None else self._background.begun(until)
        return leaving + [self._tasks.start(self._background.stop(one)) for one in every]

    def say_cancelled(self, turn: Turn) -> None:
        """Say after the running turn that a prompt was cancelled, as an earlier daemon has told."""
        self._endings.say_later(turn, self._queue.current)

    async def idle(self) -> None:
        """Wait until no turn runs or waits."""
        while (running := self._state.running) is not None:
            await asyncio.wait([running])

    @contextlib.asynccontextmanager
    async def between_turns(self) -> AsyncIterator[None]:
        """Wait until no turn runs; none begins meanwhile, except beside one of Claude's own."""
        while True:
            with self._queue.hold():
                while (turn := self._queue.current) is not None:
                    await turn.over()
                if not self._background:
                    yield
                    return
            await self._background.over()

    async def receive(
        self, delivery: Delivery, store: DeliveryStore, *, known: ImportedDelivery | None = None
    ) -> None:
        """Show a message that another program delivers, unless it is `known` as a turn; raises as
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
        turns, self.suspended = self.turns, True
        if (running := self._state.running) is not None:
            running.cancel()  # which leaves the turn to its worker
            await asyncio.wait([running])
        await self.runner.suspend(turns)

    def pause_current(self) -> None:
        """Count the turn that is to run as not being prepared: it waits for room for a worker."""
        if self._queue.current is not None:
            self._tasks.start(self.runner.attempts.pause(self._queue.current))

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
        self.parking.adopted()
        if not given:  # a worker that waits for a first prompt is for nobody any more
            (self._workers.release if self.record.prompted else self._workers.retire)(self.id)
            return
        turn, *steered = given
        for one in given:
            self.deduplication.expect(one)
            one.waited = one is not turn
            if one.cancelled.is_set():
                self._tasks.start(self.runner.stop(one))
        self.unclaimed.start_behind(given[-1])
        self._hold_lock(turn)
        self._queue.go_on(turn, steered)
        self._start_turns()

    def _hold_lock(self, turn: Turn) -> None:
        self._tasks.start(self.others.hold_lock(turn))

    def requeue(self, turn: Turn) -> None:
        """Run a prompt that another daemon had accepted and not begun, as soon as somebody stands
        behind it.
        """
        self.deduplication.expect(turn)
        self.unclaimed.add(turn)
        self.enqueue(turn)

    # --- permission requests

    async def take_frames(self, epoch: int, frames: Sequence[Numbered]) -> None:
        """Commit a worker's frames, tell everybody, and see through what it asks."""
        for one in await self.reports.frames(epoch, frames):
            self._see_through(one)

    def restore_requests(self, epoch: int, rows: Sequence[StoredRequest]) -> None:
        """Take over another daemon's requests; `epoch` is that of the live worker."""
        for one in self.permissions.restore(epoch, rows):
            self._see_through(one)

    def _see_through(self, one: PendingRequest) -> None:
        one.settlement = self._tasks.start(self._settle(one), name="settle-request")

    async def _settle(self, one: PendingRequest) -> Settled:
        """Park a request that nobody answers in time. Once it is decided, go on with the prompt that
        waited for it, or with a turn that tells Claude.
        """
        while await one.wait_until_due():
            await self._tasks.finish(self.parking.park(one))
        settled = await self.permissions.settle(one)
        if not settled.recorded and one.parking:
            await self._keep_parked(one)
        if settled.claims:
            self.unclaimed.claim_by_id(one.request.turn_id)
        if settled.turn is not None:
            self.enqueue(settled.turn)
        return settled

    async def _keep_parked(self, one: PendingRequest) -> None:
        """Let a parked request wait on whose answer could not be recorded, unless it was settled."""
        ask_id, waits = one.request.ask_id, True
        if ask_id in self.permissions.pending_ids:
            return  # the server ends
        try:
            waits = await self._journal.is_pending(ask_id)
        except StoreClosed:
            return
        except StoreUnavailable:
            pass
        if waits:
            self._see_through(self.permissions.keep_parked(one))

    def _rest(self) -> None:
        """Free what is not needed while no turn runs or waits."""
        self._save_memory()
        self.others.changed()
        self._workers.release(self.id)
        self.next_worker.rest()
