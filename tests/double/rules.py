"""pykoclaw's rules without a database: delivery targets, reply tags, prompt hashes, next runs."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Final

KNOWN: Final = ("wa", "acp", "matrix", "tg", "chat", "slack")
_REPLY: Final = re.compile(r"<reply>(.*?)</reply>", re.DOTALL)
_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7), (0, 59), (1970, 2099))


def prompt_hash(system_prompt: str | None) -> str | None:
    """Sixteen hexadecimal digits; None for no prompt and for an empty one."""
    if not system_prompt:
        return None
    return hashlib.sha256(system_prompt.encode()).hexdigest()[:16]


def prefix_of(conversation: str) -> str:
    """The channel that a name's beginning says; `chat` without a dash."""
    head, dash, _ = conversation.partition("-")
    return head if dash else "chat"


def is_known(conversation: str) -> bool:
    return any(conversation.startswith(f"{prefix}-") for prefix in KNOWN)


def delivery_target(conversation: str, target: str | None) -> tuple[str, str]:
    """Conversation and channel of a task's result; `conversation` is the task's own."""
    wanted = target or conversation
    if is_known(wanted) or not is_known(conversation):
        return wanted, prefix_of(wanted)
    channel, _, rest = conversation.partition("-")
    if rest == wanted or rest.endswith(f"-{wanted}"):
        return conversation, channel
    return f"{channel}-{wanted}", channel


def without_reply_tags(text: str) -> str:
    """What the tags contain, or the text as it is if none is closed; may be empty."""
    contents = _REPLY.findall(text)
    if not contents:
        return text
    return "\n".join(kept for one in contents if (kept := one.strip()))


def next_run(schedule_type: str, value: str, base: datetime | None = None) -> str | None:
    """The next run after now (UTC). Raises ValueError for a cron line or an interval that cannot be
    read; the time of `once` is not looked at.
    """
    base = base or datetime.now(UTC)
    if schedule_type == "cron":
        return _next_cron(value, base).isoformat()
    if schedule_type == "interval":
        return (base + timedelta(milliseconds=int(value))).isoformat()
    return value if schedule_type == "once" else None


def _next_cron(line: str, base: datetime) -> datetime:
    parts = _ALIASES.get(line.strip().lower(), line).split()
    if not 5 <= len(parts) <= 7:
        raise ValueError(f"not a cron line: {line!r}")
    read = [_field(part, *_RANGES[n]) for n, part in enumerate(parts)]
    minutes, hours, days, months, weekdays = read[:5]
    seconds = sorted(read[5]) if len(read) > 5 else [0]
    years = read[6] if len(read) > 6 else None
    weekdays = {day % 7 for day in weekdays}
    either = parts[2] != "*" and parts[4] != "*"
    day = base.replace(hour=0, minute=0, second=0, microsecond=0)
    for _ in range(366 * 30):
        on_day, on_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        if day.month in months and (on_day or on_weekday if either else on_day and on_weekday):
            for hour in sorted(hours):
                for minute in sorted(minutes):
                    for second in seconds:
                        found = day.replace(hour=hour, minute=minute, second=second)
                        if found > base and (years is None or found.year in years):
                            return found
        day += timedelta(days=1)
    raise ValueError(f"no date: {line!r}")


def _field(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin, end = (low, high) if span == "*" else (int(first), int(last or first))
        if step and not last and span != "*":
            end = high
        if not low <= begin <= end <= high:
            raise ValueError(f"not within {low}-{high}: {part!r}")
        found.update(range(begin, end + 1, int(step or 1)))
    return found
