"""Time as the program sees it: it passes when a test says so, and the wall clock may jump."""

from __future__ import annotations

import time
from typing import Final

import pytest

TICK: Final = 1e-6  # s that pass whenever somebody looks, so that no two moments are the same


class Clock:
    """Puts itself in the place of `time`'s functions, which the event loop's timers use, too."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._monotonic, self._wall = time.monotonic(), time.time()
        patch.setattr(time, "monotonic", self._now)
        patch.setattr(time, "monotonic_ns", lambda: int(self._now() * 1_000_000_000))
        patch.setattr(time, "time", self._wall_now)
        patch.setattr(time, "time_ns", lambda: int(self._wall_now() * 1_000_000_000))

    def pass_by(self, seconds: float) -> None:
        """Timers that are due by then act as soon as the event loop runs."""
        self._monotonic += seconds
        self._wall += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._wall += seconds

    def _now(self) -> float:
        self.pass_by(TICK)
        return self._monotonic

    def _wall_now(self) -> float:
        self.pass_by(TICK)
        return self._wall
