"""Times in ACP's messages."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(at: int) -> str | None:
    """ISO 8601 of a time (ms since 1970); None for one that is not known."""
    try:
        found = datetime.fromtimestamp(at / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z") if at > 0 else None
