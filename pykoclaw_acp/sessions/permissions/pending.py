"""One question, from the moment on when it is asked until it is settled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pykoclaw_acp.model.permissions import Decision, PermissionRequest
from pykoclaw_acp.sessions.permissions.policies import AwayClock
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.tasks import Tasks


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A question that waits; `seq` is what a client must have been shown before it is asked.

    `parking` is there from the moment on when the question gives up its worker, and done when that is in the database.
    """

    epoch: int
    request: PermissionRequest
    seq: int
    since: int  # ms, own clock
    clock: AwayClock
    verdict: asyncio.Future[Decision]
    asked: Tasks = field(default_factory=Tasks)
    settling: asyncio.Task[bool] | None = None
    limit: asyncio.TimerHandle | None = None
    parking: asyncio.Future[None] | None = None
    grant: str | None = None  # the parked question whose answer settles this one
    passed: dict[Subscription, Decision] = field(default_factory=dict)  # who was asked and did not choose
    withdrawn: bool = False

    @property
    def held(self) -> bool:
        """A worker waits for the answer, and there is none yet."""
        return self.parking is None and not self.verdict.done()

    @property
    def parkable(self) -> bool:
        """Its worker waits, and nobody is there."""
        return self.held and self.clock.away and self.request.form is None and not self.request.workspaces

    def give(self, verdict: Decision) -> None:
        """The first one counts."""
        if not self.verdict.done():
            self.verdict.set_result(verdict)

    def stop(self) -> None:
        """No time runs out any more."""
        self.clock.stop()
        if self.limit is not None:
            self.limit.cancel()
