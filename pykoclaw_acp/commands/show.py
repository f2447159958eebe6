"""Formatting of values, times and sizes for commands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from pykoclaw_acp import terminal
from pykoclaw_acp.neutral import neutral


def one_line(text: str | None, otherwise: str = "") -> str:
    """Text as one line, escaped."""
    return neutral((text or "").strip()) or otherwise


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values; a long value goes on below its beginning."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        terminal.write(terminal.shown(f"{name.ljust(width)}  ", bold=True))
        terminal.write(terminal.wrapped(value, width + 2, first=width + 2))


def trust(workspace: str | None) -> str:
    """Whether what acts in a worker's directories counts; empty if nothing acts there, or an older
    daemon does not say it.
    """
    return {"trusted": "trusted", "without": "run without"}.get(workspace or "", "")


def size(count: int | None) -> str:
    """Size in bytes with a unit."""
    if count is None:
        return "unknown"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def when(ms: int | None) -> str:
    """Local time of a timestamp (ms since 1970), to the second; the number outside of the years 1 to
    9999.
    """
    if ms is None:
        return "never"
    at = _of_timestamp(ms)
    return f"{ms} ms" if at is None else _second(at)


def stamp(ms: int) -> str:
    """Local time of a timestamp (ms since 1970) with its offset from UTC, for readers elsewhere; the
    number outside of the years 1 to 9999.
    """
    at = _of_timestamp(ms)
    return f"{ms} ms" if at is None else at.replace(microsecond=0).isoformat(" ")


def written(text: str) -> str:
    """Local time of one that another program has written, in UTC unless it says otherwise, to the
    second; what is none, or is outside of the years 1 to 9999, as it is.
    """
    try:
        at = datetime.fromisoformat(text)
        return _second((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone())
    except (ValueError, OverflowError):
        return one_line(text)


def _second(at: datetime) -> str:
    return at.replace(microsecond=0, tzinfo=None).isoformat(" ")


def _of_timestamp(ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def since(ms: int) -> str:
    """Age of a timestamp (ms since 1970): `12 s`, `5 min`, `3 h`, `2 d`."""
    seconds = max(int(time.time() - ms / 1000), 0)
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // divisor} {unit}"
    return f"{seconds // 86400} d"


def count(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
