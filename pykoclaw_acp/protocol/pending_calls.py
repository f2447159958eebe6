"""Tool calls that a client was shown while their input was written: it is told the rest as updates."""

from __future__ import annotations

from pykoclaw_acp.model.events import Event, ToolEnded, ToolStarted
from pykoclaw_acp.protocol.updates import ToolCall, ToolCallUpdate, Update


class PendingCalls:
    """Those of one connected client."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, str]] = set()

    def dress(self, session_id: str, event: Event | None, update: Update) -> Update:
        """The update of an event as a client takes it that has seen the calls before."""
        if isinstance(event, ToolEnded):
            self._shown.discard((session_id, event.tool_call_id))
        if not isinstance(event, ToolStarted) or not isinstance(update, ToolCall):
            return update
        call = (session_id, event.tool_call_id)
        if event.pending:
            self._shown.add(call)
        elif call in self._shown:
            self._shown.remove(call)
            return ToolCallUpdate(
                tool_call_id=update.tool_call_id,
                title=update.title,
                status=update.status,
                content=update.content,
                locations=update.locations,
                raw_input=update.raw_input,
                meta=update.meta,
            )
        return update
