"""How often a client is shown what a running call has done so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from pykoclaw_acp.model.client_traits import ClientTraits
from pykoclaw_acp.model.events import Event, ToolEnded, ToolProgressed

MOST: Final = 1000  # calls whose newest update is remembered


class ProgressPace:
    """That of one connected client; `clock` in s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}

    def takes(self, session_id: str, event: Event | None, traits: ClientTraits) -> bool:
        """Whether the client is shown this event now. What undoes a permission request does not wait;
        of what is passed over the end of the call has the rest.
        """
        pause = traits.progress_pause
        if isinstance(event, ToolEnded):
            self._told.pop((session_id, event.tool_call_id), None)
        if not isinstance(event, ToolProgressed) or not pause:
            return True
        if math.isinf(pause):
            return False
        if event.allowed:
            return True
        now, key = self._clock(), (session_id, event.tool_call_id)
        if now - self._told.get(key, -math.inf) < pause:
            return False
        self._told[key] = now
        if len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        return True
