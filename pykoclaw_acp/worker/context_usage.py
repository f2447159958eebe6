"""How full Claude's context is while a turn runs.

The tokens of a request are the context at that time; what a turn's result says is their sum over
all its requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.model.events import Event, Usage

log: Final = structlog.get_logger()

PAUSE: Final = 1.0  # s between two reports in a turn
_INPUT: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_COUNTED: Final = (*_INPUT, "output_tokens")


class ContextUsage:
    """Counts the context; `ask` is called when the window of a model is not known. `windows`: those
    that are known, in tokens, by model.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ask: Callable[[], object] = lambda: None
        self.windows: dict[str, int] = {}
        self._clock = clock
        self._model = ""
        self._tokens: dict[str, int] = {}  # of the newest request, by kind
        self._cost: float | None = None
        self._told: Usage | None = None
        self._told_at = -PAUSE

    def learn(self, model: str, window: int) -> None:
        """The size of a model's window, in tokens."""
        if window > 0:
            self.windows[model] = window

    def requested(self, model: str, usage: dict[str, Any] | None) -> list[Event]:
        """A request of the main agent is answered, of so many tokens."""
        if model and model not in self.windows:
            self.ask()
        self._model = model or self._model
        self._tokens = _told(usage, _INPUT)
        return self.due()

    def answered(self, usage: dict[str, Any] | None) -> list[Event]:
        """The answer to it has so many tokens until now; some services tell those of the request
        only then.
        """
        self._tokens |= _told(usage, _COUNTED)
        return self.due()

    def set(self, used: int) -> list[Event]:
        """The context is another: it was compacted, or cleared."""
        self._tokens = {_INPUT[0]: used}
        return self._report()

    def due(self) -> list[Event]:
        """What is to be reported now: a change, and not too soon after the one before."""
        if self._clock() - self._told_at < PAUSE:
            return []
        return self._report()

    def ended(self, windows: dict[str, Any] | None, cost: float | None) -> list[Event]:
        """The turn has ended, with these windows by model, and this cost of the conversation."""
        for model, one in (windows or {}).items():
            self.learn(model, int(one.get("contextWindow") or 0))
        self._cost = cost
        return self._report() if windows and self._used else []

    def cleared(self) -> list[Event]:
        """Claude has begun anew."""
        self._cost = None
        return self.set(0)

    @property
    def _used(self) -> int:
        return sum(self._tokens.values())

    def _report(self) -> list[Event]:
        window = self.windows.get(self._model) or max(self.windows.values(), default=0)
        now = Usage(used=self._used, size=window, cost=self._cost)
        if not window or now == self._told:
            return []
        self._told, self._told_at = now, self._clock()
        return [now]


def _told(usage: dict[str, Any] | None, keys: tuple[str, ...]) -> dict[str, int]:
    counts = {key: int((usage or {}).get(key) or 0) for key in keys}
    return {key: count for key, count in counts.items() if count > 0}


async def learn_window(client: ClaudeSDKClient, usage: ContextUsage) -> None:
    """Ask the CLI for the window of its model; it has tokens counted for that, and nothing answered."""
    try:
        found = await client.get_context_usage()
        usage.learn(found["model"], found["rawMaxTokens"])
    except Exception as error:  # noqa: BLE001  the result says it, later
        log.info("The size of the context is not known", action="window_unknown", error=repr(error))
