"""One line that counts while Claude's service does not answer and the CLI asks it again.

The CLI says when it waits, and not when it has been answered: that is what comes next of the answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from claude_agent_sdk import AssistantMessage, Message, StreamEvent, SystemMessage

from pykoclaw_acp.model.events import Event, ToolEnded, ToolProgressed, ToolStarted
from pykoclaw_acp.model.synthetic_calls import RETRY

NAME: Final = "Retry"
_REFUSED: Final = ("Claude refused the credential", "Claude refused the credential")
_WORDS: Final[dict[int | None, tuple[str, str]]] = {
    401: _REFUSED,
    403: _REFUSED,
    429: ("Claude's rate limit is reached", "Claude's rate limit was reached"),
    529: ("Claude is overloaded", "Claude was overloaded"),
}
_LOST: Final = ("The connection to Claude was lost", "The connection to Claude was lost")
_UNREACHED: Final = ("Claude's service cannot be reached", "Claude's service could not be reached")
_OTHER: Final = ("Claude's service has an error", "Claude's service had an error")


class Retries:
    """The wait that goes on, if there is one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._call: str | None = None
        self._since = 0.0
        self._due = 0.0  # when the CLI asks again
        self._attempt = 0
        self._words = _OTHER
        self._answering = False  # a message of the main agent has begun, and not ended
        self.pause: int | None = None
        """Seconds for which the CLI waited last, in this turn."""

    def follow(self, message: Message) -> list[Event]:
        """Events of this message: a wait begins, goes on, or is over."""
        if isinstance(message, SystemMessage) and message.subtype == "api_retry":
            return [self._again(message.data)]
        if isinstance(message, StreamEvent) and message.parent_tool_use_id is None:
            # A message that broke off is stopped by the CLI, without a reason of Claude's.
            kind, delta = message.event.get("type"), message.event.get("delta") or {}
            if kind == "message_start" or (kind == "message_delta" and delta.get("stop_reason")):
                self._answering = kind == "message_start"
        if self._call is not None and _answers(message):
            self.pause = None
            return self.end(answered=True)
        return []

    def end(self, *, answered: bool, stopped: bool = False) -> list[Event]:
        """The wait is over, if there was one: with an answer, or with the turn. One that is
        `stopped` before the CLI has asked again has prevented that.
        """
        if self._call is None:
            return []
        call, self._call = self._call, None
        now, answered = self._clock(), answered and not stopped
        count = self._attempt - (stopped and now < self._due)
        times = "1 retry" if count == 1 else f"{count} retries"
        after = f"after {_seconds(now - self._since)} ({times})" if count else "before a retry"
        how = "it answered" if answered else "stopped" if stopped else "no answer"
        said = f"{self._words[1]}; {how} {after}"
        return [ToolEnded(call, "completed" if answered else "failed", title=said)]

    def _again(self, data: dict[str, Any]) -> Event:
        status = data.get("error_status")
        self._words = _WORDS.get(status, _OTHER)
        if status is None:
            self._words = _LOST if self._answering else _UNREACHED
        self._answering = False
        delay = _whole(data.get("retry_delay_ms")) / 1000
        due = self._clock() + delay
        told = 0 if self._call is None else self._attempt
        # The CLI does not count all of them, and repeats what it says in a long wait.
        is_next = due - self._due > delay / 2
        self._attempt, self._due = max(_whole(data.get("attempt")), told + is_next), due
        self.pause, pause = math.ceil(delay), _seconds(delay)
        most = _whole(data.get("max_retries"))
        count = f"{self._attempt} of {most}" if self._attempt <= most else f"retry {self._attempt}"
        title = f"{self._words[0]}; asking again in {pause} ({count})"
        if self._call is not None:
            return ToolProgressed(self._call, title=title)
        self._call, self._since = f"{RETRY}{uuid4()}", self._clock()
        return ToolStarted(tool_call_id=self._call, name=NAME, title=title, tool_kind="other")


def _answers(message: Message) -> bool:
    """Whether it is a part of the main agent's answer."""
    if isinstance(message, StreamEvent):
        begun = message.event.get("type") == "message_start"
        return begun and message.parent_tool_use_id is None
    if isinstance(message, AssistantMessage):
        return message.error is None and message.parent_tool_use_id is None
    return False


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _seconds(seconds: float) -> str:
    whole = max(math.ceil(seconds), 1)
    return f"{whole} s" if whole < 120 else f"{math.ceil(whole / 60)} min"
