"""Tail of a session's log in memory, for live subscriptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from pykoclaw_acp.model.log import Logged

LIMIT: Final = 256 * 1024  # characters of rows


class Tail:
    """The newest events, contiguous, up to a size."""

    def __init__(self) -> None:
        self._events: deque[Logged] = deque()
        self._size = 0

    def extend(self, logged: Sequence[Logged]) -> None:
        """Append committed events; clears the tail before one that does not follow it."""
        for one in logged:
            if self._events and one.seq != self._events[-1].seq + 1:
                self.clear()
            self._events.append(one)
            self._size += one.size
        while self._size > LIMIT:
            self._size -= self._events.popleft().size

    def after(self, cursor: int) -> list[Logged]:
        """Events after the cursor; none if the next one has left the tail."""
        if not self._events or self._events[0].seq > cursor + 1:
            return []
        missing = self._events[-1].seq - cursor
        return [self._events[at] for at in range(len(self._events) - missing, len(self._events))]

    def clear(self) -> None:
        """Clear the tail."""
        self._events.clear()
        self._size = 0
