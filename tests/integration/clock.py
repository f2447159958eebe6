"""Time as the program sees it: it passes when a test says so, and the wall clock may jump."""

from __future__ import annotations

import time

import pytest


class Clock:
    """Puts itself in the place of `time`'s functions, which the event loop's timers use, too; real time goes on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        self._jumped = 0.0
        monotonic, now = time.monotonic, time.time
        patch.setattr(time, "monotonic", lambda: monotonic() + self.passed)
        patch.setattr(time, "monotonic_ns", lambda: int((monotonic() + self.passed) * 1_000_000_000))
        patch.setattr(time, "time", lambda: now() + self.passed + self._jumped)
        patch.setattr(time, "time_ns", lambda: int((now() + self.passed + self._jumped) * 1_000_000_000))

    def pass_by(self, seconds: float) -> None:
        """Timers that are due by then act as soon as the event loop runs."""
        self.passed += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._jumped += seconds
