"""What becomes of a session's pending requests while nobody is there to decide them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreClosed
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.permissions import (
    Deadline,
    RequestPolicy,
    StoredRequest,
)
from pykoclaw_acp.model.turns import TurnTimes
from pykoclaw_acp.sessions.permissions import audience, decisions
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.ports import PermissionStore
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class Away:
    """Runs a clock for each pending request that no client can answer, and acts by the away policy.

    A parked request is settled by a choice alone. Forms are never parked, because the MCP server
    waits inside of a tool call: under `park` they wait. While only clients that cannot show it are
    there, a form is cancelled once a client that can has had the time to come back, as after a
    restart. Whoever sees a request through parks it.
    """

    def __init__(
        self,
        state: SessionState,
        store: PermissionStore,
        times: TurnTimes,
        pending: Mapping[str, PendingRequest],
    ) -> None:
        self._state = state
        self._store = store
        self._times = times
        self._pending = pending
        self._tasks = Tasks()

    @property
    def policy(self) -> AwayPolicy:
        """The session's away policy."""
        return self._state.record.away_policy or self._times.away_policy

    # --- clocks

    def start_clocks(self) -> None:
        """Start the clocks of requests that a client which left was the last to be asked."""
        for one in self._pending.values():
            again = one.passed or one.request.form is not None  # for who stays decides how long
            if not self.is_attended(one) and (not one.clock.runs or again):
                self.start(one)

    def hasten_unsupported(self, one: PendingRequest) -> None:
        """Let a form that waits be cancelled soon: a client came that cannot show it."""
        if one.clock.waits and self.is_unsupported(one):
            self.start(one)

    def restart_clocks(self) -> None:
        """Start anew the clocks that run, under another away policy of the session."""
        for one in self._pending.values():
            if one.clock.runs:
                self.start(one)

    def start(self, one: PendingRequest, row: StoredRequest | None = None) -> None:
        """Start a request's clock, or start it anew; `row` as in AwayClock."""
        if not one.holds_worker:
            return
        policy = self.policy
        passed = audience.passed(self._state.subscriptions, one) is not None
        if passed or self.is_unsupported(one):
            policy = AwayPolicy.DENY
        if policy == AwayPolicy.WAIT and one.alone:
            policy = AwayPolicy.DENY
        if policy == AwayPolicy.PARK and one.request.workspaces:  # it has no worker to give up
            one.clock.stop()
            self._note_policy(one, RequestPolicy.PARK, None)
            return
        if policy == AwayPolicy.PARK and one.request.form is not None:
            policy = AwayPolicy.WAIT
        self._note_policy(one, RequestPolicy(policy), one.clock.start(policy, row))

    def stop(self, one: PendingRequest) -> None:
        """Stop a request's clock, if it runs: a client came."""
        if one.clock.runs:
            one.clock.stop()
            self._note_policy(one, RequestPolicy.ATTENDED, None)

    def act(self, one: PendingRequest, policy: AwayPolicy) -> None:
        """Let the away policy decide: nobody came in time."""
        if (decision := audience.passed(self._state.subscriptions, one)) is not None:
            one.decide(decision)
        elif self.is_unsupported(one):
            one.decide(decisions.UNSUPPORTED)
        elif policy != AwayPolicy.PARK:
            one.decide(decisions.by_policy(one.request, policy))
        elif one.holds_worker:
            one.give_up_worker()

    def is_attended(self, one: PendingRequest) -> bool:
        """Whether a client follows the session that can be asked, has not passed, and has somebody
        before it.
        """
        return audience.is_attended(self._state.subscriptions, one)

    def is_unsupported(self, one: PendingRequest) -> bool:
        """Whether it is a form that none of the clients that follow the session can show."""
        return audience.is_unsupported(self._state.subscriptions, one)

    def _note_policy(
        self, one: PendingRequest, policy: RequestPolicy, deadline: Deadline | None
    ) -> None:
        self._tasks.start(self._write_policy(one.request.ask_id, policy, deadline))

    async def _write_policy(
        self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None
    ) -> None:
        try:
            await self._store.set_clock(ask_id, policy, deadline)
        except StoreClosed:
            pass  # the next daemon starts the clock
        except Exception:
            log.exception(
                "A permission request's deadline could not be recorded",
                action="deadline_not_recorded",
            )

    # --- parking

    @property
    def unattended_since(self) -> int | None:
        """When the oldest request was asked (ms, own clock) that can be parked."""
        return min((one.since for one in self._pending.values() if one.parkable), default=None)

    def park_oldest(self) -> None:
        """Park the oldest request that can be parked."""
        parkable = [one for one in self._pending.values() if one.parkable]
        if parkable:
            min(parkable, key=lambda one: one.since).give_up_worker()

    @property
    def parked_turns(self) -> set[str]:
        """Turns that a parked request belongs to, which have ended or are to end."""
        return {one.request.turn_id for one in self._pending.values() if one.parking}
