"""The data directory's clock: a monotonic clock for ages and deadlines, independent of the wall
clock.

It counts the milliseconds in which the machine was awake (CLOCK_MONOTONIC). All processes of one
boot agree on it. At the next boot it continues from its last saved value; the time in which the
machine was off, and the time since the last save, are not counted. An age that it reports is
therefore a lower bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pykoclaw_acp.system import processes


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Saved value: the clock showed `counted` (ms) when the boot `boot_id` was `uptime` ms old."""

    boot_id: str
    uptime: int
    counted: int


def uptime() -> int:
    """Milliseconds since boot in which the machine was awake."""
    return time.monotonic_ns() // 1_000_000


class Clock:
    """The clock, continued from a saved value, or started at 0. `started`: its value at
    creation.
    """

    def __init__(self, noted: ClockReading | None) -> None:
        self._boot_id = processes.boot_id()
        now = uptime()
        if noted is None:
            counted = 0
        elif noted.boot_id != self._boot_id:
            counted = noted.counted + now  # the whole of this boot is newer than the saved value
        else:
            # Less: the machine was restored from a snapshot
            counted = noted.counted + max(0, now - noted.uptime)
        self._before = counted - now  # ms that are more than those since boot
        self.started = counted

    def now(self) -> int:
        """Current value in milliseconds; never decreases."""
        return self.at(uptime())

    def at(self, moment: int) -> int:
        """Value of the clock at `moment` ms after boot."""
        return self._before + moment

    def age(self, then: int) -> float:
        """Seconds since the clock showed `then`, as a lower bound; never negative."""
        return max(0, self.now() - then) / 1000

    def note(self) -> ClockReading:
        """The value to save for the next boot."""
        now = uptime()
        return ClockReading(self._boot_id, now, self.at(now))
