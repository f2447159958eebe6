"""Limit on failed worker starts: after several in a row, no other start is attempted
for a while.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import WorkerFailed

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

    def require(self, conversation: str) -> None:
        """Raise WorkerFailed unless a start may be attempted now."""
        failures = self._failures.get(conversation)
        if failures is None or len(failures) < MAX_START_ATTEMPTS:
            return
        seconds = math.ceil(failures[0][0] + INTERVAL - time.monotonic())
        if seconds <= 0:
            return
        message = (
            f"Claude's worker failed to start {MAX_START_ATTEMPTS} times within {INTERVAL:g} s, "
            f"so none is started for {seconds} s. "
            f"Send the prompt again after that. The last reason was: {failures[-1][1]}"
        )
        raise WorkerFailed(ErrorKind.START_LIMIT, message, retry_after=seconds)
