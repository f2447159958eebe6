"""Tool calls that a client was shown before the log has them whole, while their input was written or
with a permission request for them: it is told the rest as updates.
"""

from __future__ import annotations

from pykoclaw_acp.model.events import ToolEnded, ToolStarted
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.protocol.updates import ToolCall, ToolCallUpdate, Update


class PendingCalls:
    """Calls of one connected client that are pending."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], int] = {}  # their places in the log

    def begin(self, session_id: str, after: int) -> None:
        """The session is shown anew after this place: also the calls that follow it."""
        for call, seq in list(self._shown.items()):
            if call[0] == session_id and seq > after:
                del self._shown[call]

    def note(self, session_id: str, logged: Logged) -> None:
        """The client was shown this event: if a call is pending in it, that needs an update."""
        if isinstance(logged.event, ToolStarted) and logged.event.pending:
            self._shown[session_id, logged.event.tool_call_id] = logged.seq

    def announce(self, session_id: str, call: ToolCall, seq: int) -> bool:
        """Whether the client is to be shown a call that is not in the log yet, of which it has seen
        what is there up to `seq`; false if it was.
        """
        key = (session_id, call.tool_call_id)
        if key in self._shown:
            return False
        self._shown[key] = max(seq, 1)  # a load shows all anew, also where nothing is
        return True

    def dress(self, session_id: str, logged: Logged, update: Update) -> Update:
        """The update of an event as a client takes it that has seen the calls before."""
        event = logged.event
        if isinstance(event, ToolEnded):
            self._shown.pop((session_id, event.tool_call_id), None)
        if not isinstance(event, ToolStarted) or not isinstance(update, ToolCall):
            return update
        self.note(session_id, logged)
        call = (session_id, event.tool_call_id)
        if not event.pending and self._shown.pop(call, None) is not None:
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
