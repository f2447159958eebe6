"""Memory limit for the lines of all clients."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.link.framing import SMALL, LineFramer, LineInMemory

MOST: Final = 256 * 1024 * 1024  # bytes of all lines that are on their way, or are being read
PATIENCE: Final = 10.0  # s without a byte, after which a line gives way to others
WHOLE: Final = 60.0  # s after which it does so however it comes; one of 64 MiB takes a second

_Holder = LineFramer | LineInMemory


@dataclass(slots=True)
class _Held:
    owner: Hashable
    size: int
    begun: float  # s, monotonic
    since: float  # when it last grew


class LineRoom:
    """Counts lines above `SMALL`. When the limit is reached, lines that come too slowly are
    discarded, then those of owners with more than a quarter, for the sake of one with less.
    """

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._held: dict[_Holder, _Held] = {}
        self.total = 0

    def of(self, owner: Hashable) -> OwnersRoom:
        """This room for lines of one owner, such as a process."""
        return OwnersRoom(self, owner)

    def reserve(self, holder: _Holder, size: int, owner: Hashable = None) -> bool:
        """Reserve this many bytes of a line for the holder; if False, it must hold none."""
        held = self._held.get(holder)
        before = 0 if held is None else held.size
        if size <= SMALL:
            self._discard(holder)
            return True
        if self.total - before + size > self._most:
            self._make_room(holder, size - before, owner)
        if self.total - before + size > self._most:
            self._discard(holder)
            return False
        now = self._clock()
        # One that has become shorter is the next line.
        begun = now if held is None or size < before else held.begun
        self._held[holder] = _Held(owner, size, begun, now)
        self.total += size - before
        return True

    def _make_room(self, holder: _Holder, more: int, owner: Hashable) -> None:
        now = self._clock()
        others = [(one, held) for one, held in self._held.items() if one is not holder]
        for one, held in others:
            if (held.since < now - PATIENCE or held.begun < now - WHOLE) and one.drop():
                self._discard(one)
        sizes: Counter[Hashable] = Counter()
        for held in self._held.values():
            sizes[held.owner] += held.size
        share = self._most // 4
        for one, held in others:
            if sizes[owner] + more > share or self.total + more <= self._most:
                return
            if one in self._held and sizes[held.owner] > share and one.drop():
                self._discard(one)
                sizes[held.owner] -= held.size

    def _discard(self, holder: _Holder) -> None:
        if (held := self._held.pop(holder, None)) is not None:
            self.total -= held.size


@dataclass(frozen=True, slots=True)
class OwnersRoom:
    """The room of all, for the lines of one owner."""

    room: LineRoom
    owner: Hashable

    def reserve(self, holder: _Holder, size: int) -> bool:
        """Reserve as `LineRoom` does."""
        return self.room.reserve(holder, size, self.owner)
