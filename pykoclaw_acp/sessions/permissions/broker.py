"""Questions of a session: asked of every attached client that can be, settled by the first answer, or by a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from pykoclaw_acp.errors import InternalError, InvalidParams, InvalidRequest, StoreClosed
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.permissions import (
    Deadline,
    Decision,
    PermissionRequest,
    RequestOutcome,
    RequestPolicy,
    Settlement,
    StoredRequest,
)
from pykoclaw_acp.model.turns import TurnTimes
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.parked_answers import ParkedAnswers
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.permissions.policies import AwayClock
from pykoclaw_acp.sessions.permissions.settlement import Settler
from pykoclaw_acp.sessions.ports import Client, PermissionStore, Workers
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.tasks import Tasks

if TYPE_CHECKING:
    from pykoclaw_acp.sessions.session import Session

NOT_WAITING: Final = "This question is not waiting any more: it was answered, or its turn has ended."

log: Final = structlog.get_logger()


class Broker:
    """Those that wait, the oldest first. A client is asked one at a time: Mitto refuses the first when a second comes.

    A client that does not choose leaves the question to the others; that the last one does not choose settles it.

    A parked question is settled by a choice alone: a client that cannot ask anybody leaves it open. Forms are never
    parked, since the MCP server that asks waits inside of a tool call: under the policy `park` they wait.
    """

    def __init__(self, session: Session, journal: PermissionStore, workers: Workers, times: TurnTimes) -> None:
        self._session = session
        self._journal = journal
        self._times = times
        self._waiting: dict[str, PendingRequest] = {}
        self._grants = ParkedAnswers()
        self._settling = Settler(session, journal, workers, self._grants, self._close)
        self._restored: set[str] = set()
        self._tasks = Tasks()

    # --- from the session -------------------------------------------------------------------------------------------

    def open(self, epoch: int, request: PermissionRequest, seq: int) -> None:
        """Ask the clients, once each was shown the log up to `seq`; a form that none of them can show is cancelled."""
        one = self._add(epoch, request, seq, self._journal.clock.now())
        if self._is_granted(one):
            return
        if request.form is not None and self._session.attended and not self._attended(one):
            one.give(decisions.UNSUPPORTED)
            return
        self._limit(one, at_least=0)
        self._offer(one)

    def restore(self, epoch: int, rows: Sequence[StoredRequest]) -> None:
        """Take over what another daemon left, from `PermissionStore.questions`; `epoch`: of the live worker.

        Deadlines go on.
        """
        for row in rows:
            if row.outcome is not None:
                self._grants.restore(row)
                continue
            since = self._journal.clock.now() if row.asked_clock is None else row.asked_clock
            one = self._add(epoch, row.request, self._session.last_seq, since)
            if row.policy == RequestPolicy.PARKED:
                one.parking = asyncio.get_running_loop().create_future()
                one.parking.set_result(None)
            elif row.request.workspaces:  # it waits with its prompt, for no worker
                self._limit(one, at_least=self._times.away_grace)
            elif self._is_granted(one):  # that daemon ended before it could say so
                continue
            else:
                self._limit(one, at_least=self._times.away_grace)
                self._restored.add(row.request.ask_id)
            self._offer(one, row)

    async def settle_restored(self, asked: Collection[str]) -> None:
        """The adopted worker has these questions open: others that were restored were asked by one that is gone."""
        moot, self._restored = self._restored.difference(asked), set()
        for ask_id in moot & self._waiting.keys():
            await self._interrupt(ask_id)

    def adopted(self, turn_id: str) -> None:
        """This turn of another daemon goes on, unless its question was parked in that daemon's last moment."""
        if any(one.parking is not None and one.request.turn_id == turn_id for one in self._waiting.values()):
            self._session.stop_for_parked(turn_id)

    def attached(self, subscription: Subscription) -> None:
        """A client came: it is asked what is still open, and the clocks stop."""
        for one in self._waiting.values():
            if not self._can_ask_at(subscription, one.request):
                continue
            if one.clock.runs:
                one.clock.stop()
                self._note(one, RequestPolicy.ATTENDED, None)
            self._ask(one, subscription)

    def detached(self) -> None:
        """A client left; if it was the last one that can be asked, the clocks begin anew."""
        for one in self._waiting.values():
            if not self._attended(one) and (not one.clock.runs or one.passed):
                self._start_clock(one)

    def policy_changed(self) -> None:
        """The session has another away policy: clocks that run begin anew under it."""
        for one in self._waiting.values():
            if one.clock.runs:
                self._start_clock(one)

    def withdraw(self, ask_id: str) -> None:
        """The question is moot, which its row says already; a parked one never is."""
        one = self._waiting.get(ask_id)
        if one is None:
            return
        one.withdrawn = True
        if one.parking is None:
            self._close(one)
            if one.settling is not None:
                one.settling.cancel()

    async def withdraw_all(self) -> None:
        """No worker waits for any answer any more."""
        for ask_id in list(self._waiting):
            await self._interrupt(ask_id)

    async def _interrupt(self, ask_id: str) -> None:
        if self._waiting[ask_id].parking is None and not self._waiting[ask_id].request.workspaces:
            await self._journal.settle(Settlement(ask_id, RequestOutcome.INTERRUPTED))
            self.withdraw(ask_id)

    # --- about trust, for a prompt that waits ------------------------------------------------------------------------

    def about_trust(self, turn_id: str) -> PermissionRequest | None:
        """The open question about trust of this turn."""
        asks = (
            one.request for one in self._waiting.values() if one.request.workspaces and one.request.turn_id == turn_id
        )
        return next(asks, None)

    async def settled(self, ask_id: str) -> Decision:
        """Wait for the verdict on an open question; when this returns it is in the database."""
        one = self._waiting[ask_id]
        assert one.settling is not None
        await asyncio.wait([one.settling])
        if one.settling.cancelled() or not one.settling.result():
            return decisions.UNANSWERED
        return one.verdict.result()

    async def turn_over(self, turn_id: str) -> None:
        """The turn does not wait for the user's trust any more."""
        request = self.about_trust(turn_id)
        if request is not None and not self._waiting[request.ask_id].verdict.done():
            await self._journal.settle(Settlement(request.ask_id, RequestOutcome.INTERRUPTED))
            self.withdraw(request.ask_id)

    async def answer(self, ask_id: str, verdict: Decision) -> None:
        """Settle a question by a choice; when this returns the answer is in the database.

        Raises InvalidParams for an option that was not offered, InvalidRequest when the question waits no more, and
        InternalError when the answer could not be recorded.
        """
        one = self._waiting.get(ask_id)
        if one is None or one.verdict.done() or one.settling is None:
            raise InvalidRequest(NOT_WAITING)
        if not decisions.is_choice(one.request, verdict):
            raise InvalidParams(f"This question can be answered with: {', '.join(decisions.offered(one.request))}.")
        one.give(verdict)
        await asyncio.wait([one.settling])
        if one.settling.cancelled():
            raise InvalidRequest(NOT_WAITING)
        if not one.settling.result():
            raise InternalError("The answer could not be recorded; the log of pykoclaw-acp says why.")

    @property
    def open_ids(self) -> list[str]:
        """Those that wait, parked ones too."""
        return list(self._waiting)

    # --- parking ----------------------------------------------------------------------------------------------------

    @property
    def away_longest(self) -> int | None:
        """When the oldest question was asked (ms, own clock) that keeps a worker and that nobody is there to answer."""
        return min((one.since for one in self._waiting.values() if one.parkable), default=None)

    def park_oldest(self) -> None:
        """Give up the worker for the sake of others; the question waits on."""
        away = [one for one in self._waiting.values() if one.parkable]
        if away:
            self._begin_parking(min(away, key=lambda one: one.since))

    def _begin_parking(self, one: PendingRequest) -> None:
        one.parking = asyncio.get_running_loop().create_future()
        one.stop()
        self._tasks.start(self._park(one, one.parking))

    async def _park(self, one: PendingRequest, done: asyncio.Future[None]) -> None:
        try:
            await self._session.park(one.request, decisions.parked(one.request))
            log.info("Question parked", action="question_parked", session=self._session.id, question=one.request.ask_id)
        except Exception:
            one.parking = None
            if one.withdrawn:  # its turn ended at the same moment
                self.withdraw(one.request.ask_id)
                return
            log.exception("A question could not be parked", action="question_not_parked", session=self._session.id)
            if not self._attended(one):
                self._start_clock(one)
        finally:
            done.set_result(None)

    # --- asking -----------------------------------------------------------------------------------------------------

    def _add(self, epoch: int, request: PermissionRequest, seq: int, since: int) -> PendingRequest:
        loop = asyncio.get_running_loop()
        clock = AwayClock(self._times, self._journal.clock, lambda policy: self._act(one, policy))
        one = self._waiting[request.ask_id] = PendingRequest(epoch, request, seq, since, clock, loop.create_future())
        one.settling = loop.create_task(self._settle(one))
        return one

    def _is_granted(self, one: PendingRequest) -> bool:
        """The answer to a parked question settles it."""
        found = self._grants.take(one.request)
        if found is not None:
            one.grant, verdict = found
            one.give(verdict)
        return found is not None

    def _offer(self, one: PendingRequest, row: StoredRequest | None = None) -> None:
        """Ask who is there; with nobody there, the away policy's clock runs."""
        for subscription in self._session.subscriptions:
            if self._can_ask_at(subscription, one.request):
                self._ask(one, subscription)
        if not self._attended(one):
            self._start_clock(one, row)

    def _attended(self, one: PendingRequest) -> bool:
        """A client is there that can be asked this, and has not passed."""
        return any(
            place.alive and self._can_ask_at(place, one.request) and place not in one.passed
            for place in self._session.subscriptions
        )

    def _can_ask_at(self, subscription: Subscription, request: PermissionRequest) -> bool:
        """Whether the client is asked there: one that follows the session under several ids, under the first alone."""
        client = subscription.client
        places = [place for place in self._session.subscriptions if place.client is client]
        return _can_ask(client, request) and places[0].session_id == subscription.session_id

    def _ask(self, one: PendingRequest, subscription: Subscription) -> None:
        one.asked.start(self._ask_client(one, subscription))

    async def _ask_client(self, one: PendingRequest, subscription: Subscription) -> None:
        """A client's choice counts, and that it does not choose if nobody else can; one that went away says nothing."""
        client = subscription.client
        try:
            async with subscription.asking:
                await subscription.reached(one.seq)
                outcome = await client.ask(subscription.session_id, one.request)
            verdict = decisions.of_client(one.request, outcome, client.name)
        except ConnectionError:
            return
        except Exception as error:  # noqa: BLE001  whatever a client does, the question is settled
            log.info("A client could not answer", action="permission_unanswered", error=repr(error))
            verdict = decisions.UNANSWERED
        if decisions.is_choice(one.request, verdict):
            one.give(verdict)
            return
        one.passed[subscription] = verdict
        if one.parking is None and not self._attended(one):
            one.give(verdict)
        else:
            client.settled(one.request.ask_id)  # for this client: it will be asked again when it comes the next time

    # --- settling ---------------------------------------------------------------------------------------------------

    def _close(self, one: PendingRequest) -> None:
        """Nobody is asked any more; those who were are told that it is settled."""
        self._waiting.pop(one.request.ask_id, None)
        one.stop()
        one.asked.cancel()
        for subscription in self._session.subscriptions:
            subscription.client.settled(one.request.ask_id)

    async def _settle(self, one: PendingRequest) -> bool:
        """Wait for the verdict, write it down, tell everybody; whether it is in the database."""
        verdict = await asyncio.shield(one.verdict)
        one.stop()
        if one.parking is not None:
            await asyncio.wait([one.parking])
        settle = self._settling.held if one.parking is None else self._settling.parked
        if one.request.workspaces:
            settle = self._settling.about_trust
        try:
            recorded = await settle(one, verdict)
        except StoreClosed:
            return False  # the client's answer was not acknowledged: its front gives it to the next daemon
        log.info("Permission settled", action="permission_settled", session=self._session.id, outcome=verdict.outcome)
        return recorded

    # --- time -------------------------------------------------------------------------------------------------------

    def _limit(self, one: PendingRequest, at_least: float) -> None:
        """How long (s) a question waits at all, whoever is there."""
        if self._times.permission_timeout is not None:
            left = max(self._times.permission_timeout - self._journal.clock.age(one.since), at_least)
            one.limit = asyncio.get_running_loop().call_later(left, one.give, decisions.OVERDUE)

    def _start_clock(self, one: PendingRequest, row: StoredRequest | None = None) -> None:
        if one.held:
            policy = self._session.record.away_policy or self._times.away_policy
            if self._passed(one) is not None:
                policy = AwayPolicy.DENY
            if policy == AwayPolicy.PARK and one.request.workspaces:  # it has given up its worker already
                one.clock.stop()
                self._note(one, RequestPolicy(policy), None)
                return
            if policy == AwayPolicy.PARK and one.request.form is not None:
                policy = AwayPolicy.WAIT
            self._note(one, RequestPolicy(policy), one.clock.start(policy, row))

    def _act(self, one: PendingRequest, policy: AwayPolicy) -> None:
        """Nobody came in time."""
        if (verdict := self._passed(one)) is not None:
            one.give(verdict)
        elif policy == AwayPolicy.PARK:
            if one.held:
                self._begin_parking(one)
        else:
            one.give(decisions.of_policy(one.request, policy))

    def _passed(self, one: PendingRequest) -> Decision | None:
        """What a client answered that is there and did not choose: it counts once the others stay away."""
        return next((said for place, said in one.passed.items() if place in self._session.subscriptions), None)

    def _note(self, one: PendingRequest, policy: RequestPolicy, deadline: Deadline | None) -> None:
        self._tasks.start(self._write_clock(one.request.ask_id, policy, deadline))

    async def _write_clock(self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None) -> None:
        try:
            await self._journal.set_clock(ask_id, policy, deadline)
        except Exception:
            log.exception("A question's deadline could not be recorded", action="deadline_not_recorded")


def _can_ask(client: Client, request: PermissionRequest) -> bool:
    return client.present and (request.form is None or client.forms)
