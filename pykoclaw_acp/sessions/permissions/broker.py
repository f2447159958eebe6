"""A session's broker of permission requests: asks its clients, and settles each by the first
decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Final

import structlog

from pykoclaw_acp.errors import InternalError, InvalidParams, InvalidRequest, StoreClosed
from pykoclaw_acp.model.permissions import (
    Decision,
    PermissionRequest,
    RequestOutcome,
    RequestPolicy,
    Settlement,
    StoredRequest,
)
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.model.turns import Turn, TurnTimes
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.asking import Asking
from pykoclaw_acp.sessions.permissions.away import Away
from pykoclaw_acp.sessions.permissions.parked_answers import ParkedAnswers
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.permissions.policies import AwayClock
from pykoclaw_acp.sessions.permissions.settled import Settled
from pykoclaw_acp.sessions.permissions.settlement import Settler
from pykoclaw_acp.sessions.ports import PermissionStore, Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.subscription import Subscription

NOT_PENDING: Final = (
    "This permission request is no longer pending: it was decided, or its turn has ended."
)

log: Final = structlog.get_logger()


class Broker:
    """Pending requests of one session, the oldest first. `away` acts while no client is there.

    Whoever opens or restores a request sees it through: parks it when it comes due, and settles it.
    """

    def __init__(
        self, state: SessionState, store: PermissionStore, workers: Workers, times: TurnTimes
    ) -> None:
        self._state = state
        self._store = store
        self._workers = workers
        self._times = times
        self._pending: dict[str, PendingRequest] = {}
        self.away = Away(state, store, times, self._pending)
        self._asking = Asking(state, self.away)
        self._parked_answers = ParkedAnswers()
        self._settler = Settler(state, store, self._parked_answers)
        self._restored: set[str] = set()

    @property
    def pending_ids(self) -> list[str]:
        """Ids of the requests that are pending, parked ones too."""
        return list(self._pending)

    @property
    def parked(self) -> list[PermissionRequest]:
        """Requests that have given up their worker, and are not decided."""
        waiting = (one for one in self._pending.values() if one.parking and not one.decision.done())
        return [one.request for one in waiting]

    def still_offered(self, request: PermissionRequest) -> PermissionRequest:
        """The request as the session may ask it now."""
        return self._asking.still_offered(request)

    def asks_for(self, turn_id: str) -> bool:
        """Whether the turn waits for an answer; not once it has given up its worker for that."""
        return any(
            one.request.turn_id == turn_id and not one.parking for one in self._pending.values()
        )

    def has_parked(self, turn_ids: Collection[str]) -> bool:
        """Whether one of these turns has given up its worker for a request that is pending."""
        return bool(self._parked(turn_ids))

    def _parked(self, turn_ids: Collection[str]) -> list[asyncio.Task[Settled]]:
        mine = (one for one in self._pending.values() if one.request.turn_id in turn_ids)
        settling = [one.settlement for one in mine if one.parking]
        return [one for one in settling if one is not None and not one.done()]

    async def answer_to(self, turn_id: str) -> Turn | None:
        """The turn that tells Claude the answer to a parked request of this turn, of several that
        which is answered first; waits for it. None if there is none, or it is not to be answered.
        """
        while (turn := self._settler.answers.get(turn_id)) is None:
            if not (settling := self._parked([turn_id])):
                break
            await asyncio.wait(settling, return_when=asyncio.FIRST_COMPLETED)
        return turn

    # --- requests come and go

    def open(
        self, epoch: int, request: PermissionRequest, seq: int, *, alone: bool = False
    ) -> PendingRequest:
        """Ask the clients, once each was shown the log up to `seq`; cancel a form that none of them
        can show. `alone`: nobody stands behind its prompt.
        """
        one = self._add(epoch, request, seq, self._store.clock.now())
        one.alone = alone
        if self._use_parked_answer(one):
            return one
        if self.away.is_unsupported(one):
            one.decide(decisions.UNSUPPORTED)
            return one
        self._start_limit(one, at_least=0)
        self._asking.ask_all(one)
        return one

    def restore(self, epoch: int, rows: Sequence[StoredRequest]) -> list[PendingRequest]:
        """Take over another daemon's rows, whose deadlines go on; `epoch` is that of the session's
        live worker. Returns those that are pending.
        """
        restored: list[PendingRequest] = []
        for row in rows:
            if row.outcome is not None:
                self._parked_answers.restore(row)
                continue
            since = self._store.clock.now() if row.asked_clock is None else row.asked_clock
            one = self._add(epoch, row.request, self._state.last_seq, since)
            restored.append(one)
            if row.policy == RequestPolicy.PARKED:
                one.parking = True
            elif row.request.workspaces:  # it waits with its prompt, for no worker
                self._start_limit(one, at_least=self._times.away_grace)
            elif self._use_parked_answer(one):  # that daemon ended before it could say so
                continue
            else:
                self._start_limit(one, at_least=self._times.away_grace)
                self._restored.add(row.request.ask_id)
            self._asking.ask_all(one, row)
        return restored

    async def interrupt_orphans(self, asked: Collection[str]) -> None:
        """Close restored requests that are not among those which the adopted worker has open."""
        orphans, self._restored = self._restored.difference(asked), set()
        for ask_id in orphans & self._pending.keys():
            await self._interrupt(ask_id)

    async def interrupt_all(self) -> None:
        """Close the requests that a worker waited for: it is gone."""
        for ask_id in list(self._pending):
            await self._interrupt(ask_id)

    def withdraw(self, ask_id: str) -> None:
        """Close a request whose row is settled already; a parked one stays."""
        one = self._pending.get(ask_id)
        if one is None:
            return
        if one.parking:
            one.withdrawn = True
        else:
            self._withdraw(one)

    async def withdraw_rewound(self) -> None:
        """Close the parked requests whose rows were settled as their turns were rewound elsewhere."""
        for ask_id, one in list(self._pending.items()):
            if one.parking and not await self._store.is_pending(ask_id) and not one.decision.done():
                self._withdraw(one)

    def withdraw_parked(self, but: Collection[str] = ()) -> None:
        """Close the parked requests `but` these; their rows are settled already."""
        for ask_id, one in list(self._pending.items()):
            if one.parking and not one.decision.done() and ask_id not in but:
                self._withdraw(one)

    def _withdraw(self, one: PendingRequest) -> None:
        one.withdrawn = True
        self._close(one)
        if one.settlement is not None:
            one.settlement.cancel()

    async def _interrupt(self, ask_id: str) -> None:
        one = self._pending.get(ask_id)  # a client may have answered it while another was settled
        if one is not None and not one.parking and not one.request.workspaces:
            await self._store.settle(Settlement(ask_id, RequestOutcome.INTERRUPTED))
            self.withdraw(ask_id)

    # --- clients come and go

    def add_client(self, subscription: Subscription) -> None:
        """Ask a client that came what is pending."""
        for one in self._pending.values():
            self._asking.add_client(one, subscription)

    def drop_client(self, subscription: Subscription) -> None:
        """Withdraw what a client is asked that stays, and whose subscription ends."""
        for one in self._pending.values():
            self._asking.drop_client(one, subscription)

    # --- trust requests, for a prompt that waits

    def trust_request(self, turn_id: str) -> PermissionRequest | None:
        """The pending trust request of this turn."""
        return next((one for one in self.trust_requests if one.turn_id == turn_id), None)

    def hasten(self, ask_id: str) -> None:
        """Note of a request that was restored that nobody stands behind its prompt."""
        one = self._pending[ask_id]
        one.alone = True
        if one.clock.waits:
            self.away.start(one)

    @property
    def trust_requests(self) -> list[PermissionRequest]:
        """Pending trust requests."""
        return [one.request for one in self._pending.values() if one.request.workspaces]

    def trust(self, ask_id: str, by: str) -> None:
        """Settle a pending trust request: `by` has trusted what it asks about, elsewhere."""
        if (one := self._pending.get(ask_id)) is not None and not one.decision.done():
            one.trusted = True
            one.decide(Decision(RequestOutcome.SELECTED, decisions.ALLOW_ALWAYS, by))

    async def wait_settled(self, ask_id: str) -> Decision:
        """Wait until a pending request is settled; returns its decision when that is in the
        database.
        """
        one = self._pending[ask_id]
        assert one.settlement is not None
        await asyncio.wait([one.settlement])
        if one.settlement.cancelled() or not one.settlement.result().recorded:
            return decisions.UNANSWERED
        return one.settlement.result().decision

    async def drop_trust_request(self, turn_id: str) -> None:
        """Close the trust request of a turn that does not wait for it any more."""
        request = self.trust_request(turn_id)
        if request is not None and not self._pending[request.ask_id].decision.done():
            await self._store.settle(Settlement(request.ask_id, RequestOutcome.INTERRUPTED))
            self.withdraw(request.ask_id)

    # --- decisions

    async def decide(
        self, ask_id: str, decision: Decision, given: ClientEnvironment | None = None
    ) -> None:
        """Settle a pending request by a choice; returns when that is in the database. `given`: for
        the turn that tells Claude, if it was parked.

        Raises InvalidParams for an option that was not offered, InvalidRequest if the request is
        not pending any more, and InternalError if the decision could not be recorded.
        """
        one = self._pending.get(ask_id)
        if one is None or one.decision.done() or one.settlement is None:
            raise InvalidRequest(NOT_PENDING)
        request = self.still_offered(one.request)
        if not decisions.is_choice(request, decision):
            choices = ", ".join(decisions.offered(request))
            raise InvalidParams(f"This permission request can be decided with: {choices}.")
        one.given = given
        one.decide(decision)
        await asyncio.wait([one.settlement])
        if one.settlement.cancelled():
            raise InvalidRequest(NOT_PENDING)
        if not one.settlement.result().recorded:
            raise InternalError(
                "The answer could not be recorded; the log of pykoclaw-acp says why."
            )

    async def settle(self, one: PendingRequest) -> Settled:
        """Wait for the decision, write it down, and tell the clients and the worker that waits."""
        decision = await asyncio.shield(one.decision)
        one.stop_timers()
        try:
            settled = await self._settler.settle(one, decision)
            self._close(one, settled.decision)
            if settled.answer is not None:
                if by := decisions.refused_by(one.request, settled.decision):
                    self._state.refusals[one.request.tool_call_id] = by
                with contextlib.suppress(ConnectionError):
                    await self._workers.send(self._state.id, settled.answer)
        except StoreClosed:
            # The client's answer was not acknowledged: its front gives it to the next daemon.
            return Settled(decision, recorded=False)
        log.info(
            "Permission settled",
            action="permission_settled",
            session=self._state.id,
            outcome=settled.decision.outcome,
        )
        return settled

    def keep_parked(self, one: PendingRequest) -> PendingRequest:
        """The parked request as it waits on, for clients that come and for commands."""
        kept = self._add(one.epoch, one.request, one.seq, one.since)
        kept.parking = True
        return kept

    def go_on_asking(self, one: PendingRequest) -> None:
        """Note that a request could not be parked."""
        one.parking = False
        if one.withdrawn:  # its turn ended at the same moment
            self.withdraw(one.request.ask_id)
            return
        log.exception(
            "A permission request could not be parked",
            action="question_not_parked",
            session=self._state.id,
        )
        self._start_limit(one, at_least=self._times.away_grace)
        if not self.away.is_attended(one):
            self.away.start(one)

    def _use_parked_answer(self, one: PendingRequest) -> bool:
        """Decide the request as the parked one of the identical call was decided, once; False if
        there is none.
        """
        found = self._parked_answers.take(one.request)
        if found is not None:
            one.answers, decision = found
            one.decide(decision)
        return found is not None

    def _add(self, epoch: int, request: PermissionRequest, seq: int, since: int) -> PendingRequest:
        loop = asyncio.get_running_loop()
        clock = AwayClock(self._times, self._store.clock, lambda policy: self.away.act(one, policy))
        one = self._pending[request.ask_id] = PendingRequest(
            epoch, request, seq, since, clock, loop.create_future()
        )
        return one

    def _close(self, one: PendingRequest, decision: Decision | None = None) -> None:
        """Remove the request, and tell the clients that it is settled, and how; None: withdrawn."""
        self._pending.pop(one.request.ask_id, None)
        one.stop_timers()
        self._asking.close(one, decision)

    def _start_limit(self, one: PendingRequest, at_least: float) -> None:
        """Limit how long (s) a request is pending, whoever is there."""
        if self._times.permission_timeout is not None:
            left = max(self._times.permission_timeout - self._store.clock.age(one.since), at_least)
            one.limit = asyncio.get_running_loop().call_later(left, one.decide, decisions.OVERDUE)
