"""When a scheduled task runs next, by pykoclaw's rules; its times are text, and compared as
text.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

LONGEST_SCHEDULE: Final = 1000
"""Characters of a cron expression; longer ones take the library more than a moment."""


def now_text(now: datetime | None = None) -> str:
    """A time, by default the present one, as pykoclaw writes it: ISO 8601 in UTC, `+00:00`."""
    return (now or datetime.now(UTC)).isoformat()


def compute_next_run(
    schedule_type: str, schedule_value: str, base: datetime | None = None
) -> str | None:
    """The next run after `base`, by default now; None for a type that is not known.

    `cron`: an expression of five to seven fields, in UTC. `interval`: milliseconds. `once`: the
    value itself, unchecked: what is no time is never due.

    Raises ValueError, whose text is for the user, if the value cannot be used. Blocks for up to a
    second at the first cron expression, whose library is imported then: not for an event loop.
    """
    base = base or datetime.now(UTC)
    if schedule_type == "cron":
        if len(schedule_value) > LONGEST_SCHEDULE:
            raise ValueError(
                f"A cron expression may have {LONGEST_SCHEDULE} characters, this one has "
                f"{len(schedule_value)}."
            )
        from croniter import croniter

        return now_text(croniter(schedule_value, base).get_next(datetime))
    if schedule_type == "interval":
        try:
            return now_text(base + timedelta(milliseconds=int(schedule_value)))
        except OverflowError as error:
            raise ValueError(f"The interval {schedule_value} ends after the year 9999.") from error
    return schedule_value if schedule_type == "once" else None
