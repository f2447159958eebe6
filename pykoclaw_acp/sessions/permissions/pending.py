"""A permission request from the moment at which it is asked until it is settled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pykoclaw_acp.model.permissions import Decision, PermissionRequest
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.sessions.permissions.policies import AwayClock
from pykoclaw_acp.sessions.permissions.settled import Settled
from pykoclaw_acp.sessions.subscription import Subscription


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A pending request; `seq` is how much of the log a client must have been shown before it is
    asked.

    `parking`: it has given up its worker, or is to. `settlement` is started by whoever has it asked:
    it goes on until the decision was acted upon.
    """

    epoch: int
    request: PermissionRequest
    seq: int
    since: int  # ms, own clock
    clock: AwayClock
    decision: asyncio.Future[Decision]
    # who is asked; once there is a decision, who was
    asking: dict[Subscription, asyncio.Task[None]] = field(default_factory=dict)
    settlement: asyncio.Task[Settled] | None = None
    limit: asyncio.TimerHandle | None = None
    parking: bool = False
    due: bool = False  # to be parked, now
    news: asyncio.Event = field(default_factory=asyncio.Event)  # of `due` and `decision`
    answers: str | None = None  # the parked request whose decision settles this one
    # Clients that were asked and did not choose
    passed: dict[Subscription, Decision] = field(default_factory=dict)
    # clients that were asked, and in front of which nobody was
    absent: set[Subscription] = field(default_factory=set)
    withdrawn: bool = False
    alone: bool = False  # nobody stands behind its prompt, so that it does not wait long
    trusted: bool = False  # elsewhere, which is in the database already
    given: ClientEnvironment | None = None  # by who has decided, for a turn that tells Claude

    @property
    def holds_worker(self) -> bool:
        """Whether a worker waits for the decision, and there is none yet."""
        return not self.parking and not self.decision.done()

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
            self.news.set()

    def give_up_worker(self) -> None:
        """Have it parked."""
        self.parking = self.due = True
        self.stop_timers()
        self.news.set()

    async def wait_until_due(self) -> bool:
        """Wait until it is to be parked, or decided; returns whether it is to be parked before
        anything else.
        """
        while not self.due and not self.decision.done():
            self.news.clear()
            await self.news.wait()
        due, self.due = self.due, False
        return due

    def stop_timers(self) -> None:
        """Stop the away clock and the limit."""
        self.clock.stop()
        if self.limit is not None:
            self.limit.cancel()
