"""Usage limits of a subscription: told once before they are reached, and when they end."""

from __future__ import annotations

import time
from typing import Final

from claude_agent_sdk import RateLimitEvent
from claude_agent_sdk.types import RateLimitInfo
from msgspec.structs import replace

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.failures import USAGE_LIMIT, TurnFailure
from pykoclaw_acp.worker.lines import line

_NAMES: Final = {
    "five_hour": "5-hour limit",
    "seven_day": "weekly limit",
    "seven_day_opus": "weekly limit for Opus",
    "seven_day_sonnet": "weekly limit for Sonnet",
    "overage": "limit of extra usage",
}
_OTHER: Final = "usage limit"
_REFUSED: Final = "rate_limit"  # the kind of failure that a limit which was reached causes


class Limits:
    """What the CLI has said of the account's limits."""

    def __init__(self) -> None:
        self._reached: RateLimitInfo | None = None
        self._warned: set[str] = set()

    def follow(self, event: RateLimitEvent) -> list[Event]:
        """The warning, when a limit is near; once until the CLI says that it is not."""
        info = event.rate_limit_info
        kind = str(info.rate_limit_type)
        self._reached = info if info.status == "rejected" else None
        if info.status == "allowed":
            self._warned.discard(kind)
        if info.status != "allowed_warning" or kind in self._warned:
            return []
        self._warned.add(kind)
        used = "Most" if info.utilization is None else f"{round(info.utilization * 100)} %"
        when = "" if info.resets_at is None else f" It resets at {local_time(info.resets_at)}."
        return line(f"**{used} of Claude's {_name(info)} is used.**{when}")

    def explained(self, failure: TurnFailure) -> TurnFailure:
        """The failure, with the limit that has caused it and its end."""
        info = self._reached
        if failure.kind != _REFUSED or info is None:
            return failure
        if info.resets_at is None:
            said = f"Claude's {_name(info)} is reached. Wait, then send the prompt again."
            return replace(failure, kind=USAGE_LIMIT, message=said)
        left = max(round(info.resets_at - time.time()), 0)
        said = f"Claude's {_name(info)} is reached. It resets at {local_time(info.resets_at)}."
        return replace(
            failure, kind=USAGE_LIMIT, message=said, retry_after=left, resets_at=info.resets_at
        )


def local_time(seconds: float) -> str:
    """A time in the user's zone (`TZ`), with the day if that is not today."""
    time.tzset()  # the worker was forked before it got the session's environment
    at, now = time.localtime(seconds), time.localtime()
    same_day = at[:3] == now[:3]
    return time.strftime("%H:%M %Z" if same_day else "%a %d %b %H:%M %Z", at)


def _name(info: RateLimitInfo) -> str:
    return _NAMES.get(str(info.rate_limit_type), _OTHER)
