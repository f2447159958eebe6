"""Limit on failed worker starts: after several in a row, no other start is attempted
for a while.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

MAX_START_ATTEMPTS: Final = 3  # failed starts of one conversation's worker…
INTERVAL: Final = 60.0  # …within so many seconds


class StartLimit:
    """Failed starts by conversation, each with its time (s, monotonic) and its reason."""

    def __init__(self) -> None:
        self._failures: dict[str, deque[tuple[float, str]]] = {}

    def record_failure(self, conversation: str, reason: str) -> None:
        """A worker could not be started, or ended before it was ready."""
        for other in [
            key
            for key, failed in self._failures.items()
            if failed[-1][0] + INTERVAL < time.monotonic()
        ]:
            del self._failures[other]
        self._failures.setdefault(conversation, deque(maxlen=MAX_START_ATTEMPTS)).append(
            (time.monotonic(), reason)
        )

    def record_success(self, conversation: str) -> None:
        """A worker is ready: earlier failures no longer count."""
        self._failures.pop(conversation, None)

    def delay(self, conversation: str) -> float:
        """Seconds until the next start may be attempted; 0: now."""
        failures = self._failures.get(conversation)
        if failures is None or len(failures) < MAX_START_ATTEMPTS:
            return 0.0
        return max(0.0, failures[0][0] + INTERVAL - time.monotonic())

    def last_reason(self, conversation: str) -> str:
        """Why the last start failed."""
        return self._failures[conversation][-1][1]
