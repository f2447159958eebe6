"""Calls whose long input Claude is writing: announced before it is complete, so that nobody waits
before nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any, Final

from pykoclaw_acp.model.events import EDITS, ToolEnded, ToolStarted
from pykoclaw_acp.translation import deciding, titles, tools

AFTER: Final = 1.0  # s of writing
MOST: Final = 8192  # characters of the input in which its file is named

_FILE: Final = re.compile(r'\s*\{\s*"(file_path|notebook_path)"\s*:\s*("(?:[^"\\]|\\.)*")')


class Announcing:
    """The announcing of calls of one stream. `cwd` and `plans` as in Translation; `clock` in s."""

    def __init__(self, cwd: str, plans: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._cwd = cwd
        self._plans = plans
        self._clock = clock
        self._written: dict[int, _Input] = {}
        self._announced: list[str] = []

    def begin(self, index: int, block: dict[str, Any]) -> None:
        """Follow a content block, if it is a call that may be announced: one whose title says the file
        alone, which comes first.
        """
        if block.get("type") == "tool_use" and block.get("name") in EDITS:
            self._written[index] = _Input(str(block.get("id")), block["name"], self._clock())

    def more(self, index: int, text: str) -> list[ToolStarted]:
        """The announcement of a call of which this much more is written, if it is due."""
        if (call := self._written.get(index)) is None:
            return []
        if len(call.text) < MOST:
            call.text += text
        if self._clock() - call.begun < AFTER:
            return []
        del self._written[index]
        return self._announce(call)

    def _announce(self, call: _Input) -> list[ToolStarted]:
        if (found := _FILE.match(call.text)) is None:
            return []
        arguments = {found[1]: json.loads(found[2], strict=False)}
        if deciding.is_quiet(call.name, arguments, self._plans):
            return []
        self._announced.append(call.id)
        return [
            ToolStarted(
                tool_call_id=call.id,
                name=call.name,
                title=titles.title(call.name, arguments, self._cwd),
                tool_kind=tools.kind(call.name),
                locations=tools.locations(call.name, arguments, self._cwd),
                pending=True,
            )
        ]

    def over(self, knows: Callable[[str], bool], reason: str) -> list[ToolEnded]:
        """Ends of announced calls that were never made; `knows` says whether one was."""
        self._written.clear()
        lost = [call for call in self._announced if not knows(call)]
        self._announced.clear()
        return [ToolEnded(call, "failed", reason=reason) for call in lost]


class _Input:
    """What is written of a call's input."""

    def __init__(self, call: str, name: str, begun: float) -> None:
        self.id = call
        self.name = name
        self.begun = begun
        self.text = ""
