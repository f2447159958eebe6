"""The away policy's clock of one permission request: it runs while no client is there.

It stops when a client comes, and begins anew when the last one has left. A daemon that restores a
request goes on with the deadline that is in its row, but gives clients the time to come back
first. What counts are deadlines by the own clock; those by the wall clock are shown to people.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.permissions import Deadline, RequestPolicy, StoredRequest
from pykoclaw_acp.model.turns import TurnTimes
from pykoclaw_acp.system.clock import Clock


class AwayClock:
    """Calls `act` with the policy when its time is over."""

    def __init__(self, times: TurnTimes, clock: Clock, act: Callable[[AwayPolicy], None]) -> None:
        self._times = times
        self._clock = clock
        self._act = act
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0  # the loop's time
        self._policy = AwayPolicy.WAIT

    @property
    def runs(self) -> bool:
        """Nobody is there, and the policy has not acted."""
        return self._timer is not None

    @property
    def waits(self) -> bool:
        """Nobody is there, and the policy is to wait."""
        return self.runs and self._policy == AwayPolicy.WAIT

    @property
    def away(self) -> bool:
        """Nobody has been there for longer than a reconnect takes."""
        return (
            self.runs and asyncio.get_running_loop().time() - self._since >= self._times.away_grace
        )

    def start(self, policy: AwayPolicy, row: StoredRequest | None = None) -> Deadline:
        """Run, or run anew; returns the deadline. `row`: another daemon has begun it."""
        self.stop()
        loop, now = asyncio.get_running_loop(), self._clock.now()
        wait = self._times.away_timeout if policy == AwayPolicy.WAIT else self._times.away_grace
        if (
            row is not None
            and row.policy == RequestPolicy(policy)
            and row.deadline_clock is not None
        ):
            wait = min(wait, max((row.deadline_clock - now) / 1000, self._times.away_grace))
        self._since, self._policy = loop.time(), policy
        self._timer = loop.call_later(wait, self._end, policy)
        return Deadline(int((time.time() + wait) * 1000), now + int(wait * 1000))

    def stop(self) -> None:
        """Somebody is there, or the request is settled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, policy: AwayPolicy) -> None:
        self._timer = None
        self._act(policy)
