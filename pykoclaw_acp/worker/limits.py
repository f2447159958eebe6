"""Usage limits of a subscription: told once before they are reached, and when they end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from claude_agent_sdk import RateLimitEvent
from claude_agent_sdk.types import RateLimitInfo
from msgspec.structs import replace

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.worker.status_lines import line

_NAMES: Final = {
    "five_hour": "5-hour limit",
    "seven_day": "weekly limit",
    "seven_day_opus": "weekly limit for Opus",
    "seven_day_sonnet": "weekly limit for Sonnet",
    "overage": "limit of extra usage",
}
_OTHER: Final = "usage limit"


class _Window(NamedTuple):
    """A limit: its kind, and the CLI's word for how near it is."""

    kind: str
    status: object
    used: float | None  # of 1
    resets: float | None


class Limits:
    """What the CLI has said of the account's limits."""

    def __init__(self) -> None:
        self._reached: RateLimitInfo | None = None
        self._warned: set[str] = set()

    def follow(self, event: RateLimitEvent) -> list[Event]:
        """A warning for each limit that is near; once until the CLI says that it is not."""
        info = event.rate_limit_info
        self._reached = info if info.status == "rejected" else None
        return [one for window in _windows(info) for one in self._warning(window)]

    def _warning(self, window: _Window) -> list[Event]:
        if window.status == "allowed":
            self._warned.discard(window.kind)
        if window.status != "allowed_warning" or window.kind in self._warned:
            return []
        self._warned.add(window.kind)
        used = "Most" if window.used is None else f"{round(window.used * 100)} %"
        when = "" if window.resets is None else f" It resets at {local_time(window.resets)}."
        return line(f"**{used} of Claude's {_name(window.kind)} is used.**{when}")

    def explained(self, failure: TurnFailure) -> TurnFailure:
        """The failure, with the limit that has caused it and its end."""
        info = self._reached
        if failure.kind != ErrorKind.RATE_LIMIT or info is None:
            return failure
        if info.resets_at is None:
            said = f"Claude's {_name(info.rate_limit_type)} is reached. Wait, then send the prompt again."
            return replace(failure, kind=ErrorKind.USAGE_LIMIT, message=said)
        left = max(math.ceil(info.resets_at - time.time()), 0)
        said = f"Claude's {_name(info.rate_limit_type)} is reached. It resets at {local_time(info.resets_at)}."
        return replace(
            failure,
            kind=ErrorKind.USAGE_LIMIT,
            message=said,
            retry_after=left,
            resets_at=info.resets_at,
        )


def local_time(seconds: float) -> str:
    """A time in the user's zone (`TZ`), with the day if that is not today; the minute by whose
    beginning it is over.
    """
    seconds = math.ceil(int(seconds) / 60) * 60
    time.tzset()  # the worker was forked before it got the session's environment
    at, now = time.localtime(seconds), time.localtime()
    same_day = at[:3] == now[:3]
    return time.strftime("%H:%M %Z" if same_day else "%a %d %b %H:%M %Z", at)


def _windows(info: RateLimitInfo) -> Iterator[_Window]:
    """All limits that the CLI tells of; the one that it names may be told only beside the others."""
    told = info.raw.get("unifiedWindows")
    windows: dict[str, Any] = told if isinstance(told, dict) else {}
    for kind, one in windows.items():
        if isinstance(one, dict):
            used, resets = _number(one.get("utilization")), _number(one.get("resetsAt"))
            yield _Window(kind, one.get("status"), used, resets)
    if (named := str(info.rate_limit_type)) not in windows:
        yield _Window(named, info.status, info.utilization, info.resets_at)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def _name(kind: object) -> str:
    return _NAMES.get(str(kind), _OTHER)
