"""The data directory's own clock, which decides what the wall clock must not: how old something is.

It counts the milliseconds in which the machine was awake (CLOCK_MONOTONIC). All processes of one boot agree on it. From
one boot to the next it is counted on from where it was noted last: the time in which the machine was off, and what came
after the last note, are left out. So whatever it is asked about is at least as old as it says.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pykoclaw_acp.system import processes


@dataclass(frozen=True, slots=True)
class Note:
    """Where the clock stood: `counted` (ms), when the boot `boot_id` was `uptime` ms old."""

    boot_id: str
    uptime: int
    counted: int


def uptime() -> int:
    """Milliseconds for which this boot has been awake."""
    return time.monotonic_ns() // 1_000_000


class Clock:
    """Goes on from a note; without one it begins at 0. `started` is when it was made."""

    def __init__(self, noted: Note | None) -> None:
        self._boot_id = processes.boot_id()
        now = uptime()
        if noted is None:
            counted = 0
        elif noted.boot_id != self._boot_id:
            counted = noted.counted + now  # all of this boot came after the note
        else:
            counted = noted.counted + max(0, now - noted.uptime)  # less: the machine was put back to a snapshot
        self._before = counted - now
        self.started = counted

    def now(self) -> int:
        """Milliseconds; never goes back."""
        return self.at(uptime())

    def at(self, moment: int) -> int:
        """What the clock showed, or will show, when this boot is `moment` ms old."""
        return self._before + moment

    def age(self, then: int) -> float:
        """Seconds since the clock showed `then`, at least; 0 for what an earlier boot wrote after its last note."""
        return max(0, self.now() - then) / 1000

    def note(self) -> Note:
        """For the next boot."""
        now = uptime()
        return Note(self._boot_id, now, self.at(now))
