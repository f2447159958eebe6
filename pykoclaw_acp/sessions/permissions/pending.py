"""A permission request from the moment at which it is asked until it is settled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pykoclaw_acp.model.permissions import Decision, PermissionRequest
from pykoclaw_acp.sessions.permissions.policies import AwayClock
from pykoclaw_acp.sessions.subscription import Subscription


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A pending request; `seq` is how much of the log a client must have been shown before it is
    asked.

    `parking` exists once the request is to give up its worker, and is done when that is in the
    database. `settlement` returns whether the decision is in the database.
    """

    epoch: int
    request: PermissionRequest
    seq: int
    since: int  # ms, own clock
    clock: AwayClock
    decision: asyncio.Future[Decision]
    # who is asked; once there is a decision, who was
    asking: dict[Subscription, asyncio.Task[None]] = field(default_factory=dict)
    settlement: asyncio.Task[bool] | None = None
    limit: asyncio.TimerHandle | None = None
    parking: asyncio.Future[None] | None = None
    answers: str | None = None  # the parked request whose decision settles this one
    passed: dict[Subscription, Decision] = field(
        default_factory=dict
    )  # clients that were asked and did not choose
    # clients that were asked, and in front of which nobody was
    absent: set[Subscription] = field(default_factory=set)
    withdrawn: bool = False

    @property
    def holds_worker(self) -> bool:
        """Whether a worker waits for the decision, and there is none yet."""
        return self.parking is None and not self.decision.done()

    @property
    def parkable(self) -> bool:
        """Whether it holds a worker, nobody is there to answer it, and it is of a kind that can be
        parked.
        """
        kind = self.request.form is None and not self.request.workspaces
        return kind and self.holds_worker and self.clock.away

    def decide(self, decision: Decision) -> None:
        """Take this decision, unless there is one."""
        if not self.decision.done():
            self.decision.set_result(decision)

    def stop_timers(self) -> None:
        """Stop the away clock and the limit."""
        self.clock.stop()
        if self.limit is not None:
            self.limit.cancel()
