"""Memory limit for the lines of all clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.link.framing import SMALL, LineFramer, LineInMemory

MOST: Final = 256 * 1024 * 1024  # bytes of all lines that are on their way, or are being read
PATIENCE: Final = 10.0  # s without a byte, after which a line gives way to others


@dataclass(slots=True)
class _Held:
    size: int
    since: float  # when it last grew; s, monotonic


class LineRoom:
    """Counts lines above `SMALL`. When the limit is reached, lines that have stalled
    are discarded.
    """

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._held: dict[LineFramer | LineInMemory, _Held] = {}
        self.total = 0

    def reserve(self, holder: LineFramer | LineInMemory, size: int) -> bool:
        """Reserve this many bytes of a line for the holder; if False, it must hold none."""
        held = self._held.get(holder)
        before = 0 if held is None else held.size
        if size <= SMALL:
            self._held.pop(holder, None)
            self.total -= before
            return True
        if self.total - before + size > self._most:
            self._make_room(holder)
        if self.total - before + size > self._most:
            self._held.pop(holder, None)
            self.total -= before
            return False
        self._held[holder] = _Held(size, self._clock())
        self.total += size - before
        return True

    def _make_room(self, holder: LineFramer | LineInMemory) -> None:
        before = self._clock() - PATIENCE
        for other, held in list(self._held.items()):
            if other is not holder and held.since < before and other.drop():
                del self._held[other]
                self.total -= held.size
