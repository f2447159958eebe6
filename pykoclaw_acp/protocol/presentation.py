"""An event as a certain client is shown it: by its capabilities, and by what the user wants to see.

Pure functions. What no client has an update of its own for is shown as in `projection.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from pykoclaw_acp.model.events import (
    ConfigChanged,
    Event,
    TextPart,
    Thinking,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from pykoclaw_acp.model.synthetic_calls import COMPACTION, RETRY, is_synthetic
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.protocol.content import TextContent
from pykoclaw_acp.protocol.messages import ClientCapabilities
from pykoclaw_acp.protocol.updates import CompactionUpdate, NoticeUpdate, ToolCallUpdate, Update

UNKNOWN: Final = "The compaction did not end."

_Call = ToolStarted | ToolProgressed | ToolEnded


@dataclass(frozen=True, slots=True)
class Presentation:
    """What a client has updates for: `notices`, `compaction`; whether it takes config options of the
    type `boolean`; and whether it is shown `thoughts`.
    """

    notices: bool = False
    compaction: bool = False
    booleans: bool = False
    thoughts: bool = True

    @classmethod
    def of(cls, capabilities: ClientCapabilities, *, thoughts: bool) -> Presentation:
        """The presentation for a client with these capabilities."""
        session = capabilities.session
        return cls(
            notices=session.notices is not None,
            compaction=session.compaction is not None,
            booleans=session.config_options.boolean is not None,
            thoughts=thoughts,
        )


def update(seq: int, event: Event | None, how: Presentation) -> Update | None:
    """The update of the event at `seq`; None if this client is shown nothing of it."""
    if isinstance(event, Thinking) and not how.thoughts:
        return None
    event = visible(event, how)
    if isinstance(event, _Call):
        meta: dict[str, Any] = {projection.SEQ: seq}
        if how.notices and event.tool_call_id.startswith(RETRY):
            return _notice(event, meta)
        if how.compaction and event.tool_call_id.startswith(COMPACTION):
            return _compaction(event, meta)
    if isinstance(event, ConfigChanged) and how.booleans:
        shown = projection.choices_update(event.selection, booleans=True)
        return replace(shown, meta={projection.SEQ: seq})
    return projection.update(seq, event)


def visible(event: Event | None, how: Presentation) -> Event | None:
    """The event; a call without what its subagent has thought, if thinking is hidden."""
    return event if how.thoughts or not isinstance(event, _Call) else _without_thoughts(event)


def last_title(event: Event | None, shown: Update) -> str | None:
    """How a wait or a compaction has ended, if only the new title of a call says so."""
    if isinstance(shown, ToolCallUpdate) and isinstance(event, ToolEnded):
        return event.title if is_synthetic(event.tool_call_id) else None
    return None


def _without_thoughts(event: _Call) -> _Call:
    shown = [part for part in event.content if not (isinstance(part, TextPart) and part.thought)]
    return replace(event, content=tuple(shown))


def _notice(event: _Call, meta: dict[str, Any]) -> Update | None:
    if event.title is None:
        return None  # it ended with its worker, and the turn says so
    over = isinstance(event, ToolEnded) and event.status == "completed"
    return NoticeUpdate(severity="info" if over else "warning", title=event.title, meta=meta)


def _compaction(event: _Call, meta: dict[str, Any]) -> Update:
    done = CompactionUpdate(compaction_id=event.tool_call_id, status="in_progress", meta=meta)
    if not isinstance(event, ToolEnded):
        return done
    if event.status == "failed":
        return replace(done, status=event.status, error=event.title or event.reason or UNKNOWN)
    summary = [TextContent(text=event.title)] if event.title else None
    return replace(done, status=event.status, summary=summary)
