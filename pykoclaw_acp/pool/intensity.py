"""How often a worker may fail to start: after too many failures in a row no other start is tried for a while."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

LIMIT: Final = 3  # failed starts of one conversation's worker…
PERIOD: Final = 60.0  # …within so many seconds


class StartIntensity:
    """Failed starts by conversation, each with its moment (s, monotonic) and its reason."""

    def __init__(self) -> None:
        self._failed: dict[str, deque[tuple[float, str]]] = {}

    def failed(self, conversation: str, reason: str) -> None:
        """A worker could not be started, or ended before it was ready."""
        for other in [key for key, moments in self._failed.items() if moments[-1][0] + PERIOD < time.monotonic()]:
            del self._failed[other]
        self._failed.setdefault(conversation, deque(maxlen=LIMIT)).append((time.monotonic(), reason))

    def succeeded(self, conversation: str) -> None:
        """A worker is ready: what failed before does not count any more."""
        self._failed.pop(conversation, None)

    def wait(self, conversation: str) -> float:
        """Seconds until a start may be tried; 0: now."""
        failed = self._failed.get(conversation)
        if failed is None or len(failed) < LIMIT:
            return 0.0
        return max(0.0, failed[0][0] + PERIOD - time.monotonic())

    def reason(self, conversation: str) -> str:
        """Why the last start failed."""
        return self._failed[conversation][-1][1]
