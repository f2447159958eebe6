"""Quiet hours: a part of the day, in local time, in which nobody is told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

LONGEST_WAIT: Final = 60.0  # s; between two looks at the wall clock
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `begin` to `end`, in minutes after midnight; over midnight if `end` is not later."""

    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Read `22:00-07:00`; raises ValueError."""
        found = _HOURS.fullmatch(text.strip())
        if found is None:
            raise ValueError("quiet hours are two times of the day, such as 22:00-07:00")
        hours = [int(part) for part in found.groups()]
        made = cls(hours[0] * 60 + hours[1], hours[2] * 60 + hours[3])
        if made.begin == made.end:
            raise ValueError("quiet hours begin and end at different times")
        return made

    def pause(self) -> float:
        """Seconds to wait before looking again whether the quiet hours are over; 0 outside of them."""
        return min(self.left(datetime.now().astimezone()), LONGEST_WAIT)

    def left(self, now: datetime) -> float:
        """Seconds until the quiet hours end; 0 outside of them. `now` is local time."""
        minute = now.hour * 60 + now.minute
        begun, over = minute >= self.begin, minute >= self.end
        quiet = begun and not over if self.begin < self.end else begun or not over
        if not quiet:
            return 0.0
        end = now.replace(hour=self.end // 60, minute=self.end % 60, second=0, microsecond=0)
        if end <= now:
            end += timedelta(days=1)
        return (end - now).total_seconds()
