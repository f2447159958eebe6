"""Tool calls that a CLI found without a result as it resumed: it writes one of its own for each.

The program that made the call may still run. Its result then comes later, on another branch, and
corrects what was said of the call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from pykoclaw_acp.model.events import Event, TextPart, ToolEnded
from pykoclaw_acp.transcripts.entries import Entry
from pykoclaw_acp.transcripts.state import State
from pykoclaw_acp.transcripts.subagents import Subagents
from pykoclaw_acp.translation import cleaning
from pykoclaw_acp.translation.call_ids import CallIds
from pykoclaw_acp.translation.translator import ToolResult, Translation

MOST: Final = 20  # calls that may still get their result
NO_OUTPUT: Final = "(no output)"


class InterruptedCalls:
    """Such calls of the transcript with this state, and their ends."""

    def __init__(
        self, state: State, translation: Translation, subagents: Subagents, ids: CallIds
    ) -> None:
        self._state = state
        self._translation = translation
        self._subagents = subagents
        self._ids = ids

    def end_tools(self, results: Sequence[ToolResult], entry: Entry) -> list[Event]:
        """Events of an entry's results, of tools or of a CLI in their place."""
        events, returned, again = list[Event](), list[ToolResult](), set[str]()
        for one in results:
            call = self._ids.of(one.tool_use_id)
            if one.is_error and isinstance(one.content, str) and cleaning.is_unknown(one.content):
                events += self._interrupt(call, one.content)
                self._ids.ended(one.tool_use_id)
                continue
            returned.append(one)
            if (found := self._state.interrupted.pop(call, None)) is not None:
                self._translation.names.pop(call, None)
                found.restore(call, self._translation)
                self._subagents.since[call] = found.since
                self._state.calls[call] = found  # it may go on in the background from now on
                again.add(call)
        ends = self._subagents.end_tools(returned, entry) if returned else []
        return [*events, *(_corrected(one, again) for one in ends)]

    def _interrupt(self, call: str, told: str) -> list[Event]:
        translation, kept = self._translation, self._state.interrupted
        if call not in translation.running or call in translation.background:
            return []
        if (found := self._state.calls.get(call)) is not None:
            kept[call] = found.now(call, translation)
            if len(kept) > MOST:
                del kept[next(iter(kept))]
        return translation.end_these([call], cleaning.without_result(told) or "")


def _corrected(event: Event, again: Collection[str]) -> Event:
    """An end of a call, with words in place of what was said of its end before, if it shows nothing."""
    if isinstance(event, ToolEnded) and event.tool_call_id in again and not event.content:
        return replace(event, content=(TextPart(NO_OUTPUT, beside=True),))
    return event
