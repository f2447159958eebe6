"""How often a client is shown what a running call has done so far."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.model.client_traits import ClientTraits
from pykoclaw_acp.model.events import ToolEnded, ToolProgressed
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.sessions.live_pace import LivePace

MOST: Final = 1000  # calls whose newest update is remembered
SLACK: Final = 0.05  # s before its turn that an update is sent, rather than later than others


@dataclass(slots=True)
class _Progress:
    """What a client knows of a call: when it was shown something (s), up to which place; and what
    has come since and waits, until it is `due` (s).
    """

    at: float
    seq: int
    waiting: Logged | None = None
    timer: asyncio.TimerHandle | None = None
    due: float = 0.0

    def drop(self) -> None:
        """What waits is shown no more."""
        self.waiting = None
        if self.timer is not None:
            self.timer.cancel()


class ProgressPace:
    """How often one connected client is shown progress; `clock` in s. `due` is told the session and
    the call of which something has waited long enough, for `take`. `turns` are those of all that
    goes on for the client.
    """

    def __init__(
        self,
        due: Callable[[str, str], object],
        turns: LivePace,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._due = due
        self._turns = turns
        self._clock = clock
        self._known: dict[tuple[str, str], _Progress] = {}

    def admit(
        self, session_id: str, logged: Logged, traits: ClientTraits, *, replayed: bool = False
    ) -> bool:
        """Decide whether to show the event now; otherwise hold it. What undoes a permission request
        does not wait, nor what is `replayed`; of what is held the newest follows after the pause, or
        with its turn, unless the call ends before.
        """
        event, pause = logged.event, traits.progress_pause
        if isinstance(event, ToolEnded):
            self._forget((session_id, event.tool_call_id))
        if not isinstance(event, ToolProgressed):
            return True
        if math.isinf(pause):
            return False
        now, key = self._clock(), (session_id, event.tool_call_id)
        known = self._known.get(key)
        left = 0.0 if event.allowed or replayed else self._left(known, pause, now)
        if known is not None:
            known.drop()
        if event.allowed:
            return True
        if left > 0:
            known = known or self._keep(key, _Progress(-math.inf, 0))
            known.waiting, known.due = logged, now + left
            known.timer = asyncio.get_running_loop().call_later(left, self._due, *key)
            return False
        self._keep(key, _Progress(now, logged.seq))
        return True

    def _left(self, known: _Progress | None, pause: float, now: float) -> float:
        """How long (s) more of a call has to wait."""
        if known is not None and known.waiting is not None and known.due > now:
            return known.due - now
        if known is not None and known.at + pause > now:
            return known.at + pause - now
        left = self._turns.reserve()
        return left if left > SLACK else 0.0

    def _keep(self, key: tuple[str, str], progress: _Progress) -> _Progress:
        self._known[key] = progress
        if len(self._known) > MOST:
            self._forget(next(iter(self._known)))
        return progress

    def take(self, session_id: str, call: str) -> Logged | None:
        """What of the call is to be shown now, if the call has not ended."""
        known = self._known.get((session_id, call))
        if known is None or (waiting := known.waiting) is None:
            return None
        known.drop()
        self._known[session_id, call] = _Progress(self._clock(), waiting.seq)
        return waiting

    def begin(self, session_id: str, after: int) -> None:
        """The session is shown anew after this place: what follows it neither waits nor lets wait."""
        for key, known in list(self._known.items()):
            newest = known.seq if known.waiting is None else known.waiting.seq
            if key[0] == session_id and newest > after:
                self._forget(key)

    def stop(self, session_id: str | None = None) -> None:
        """The client is shown nothing more of this session; None: of any."""
        for key in list(self._known):
            if session_id in (None, key[0]):
                self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        if (known := self._known.pop(key, None)) is not None:
            known.drop()
