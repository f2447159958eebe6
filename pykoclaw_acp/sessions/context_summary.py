"""What was said last in a conversation, for a Claude that does not remember it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from pykoclaw_acp.model import digest
from pykoclaw_acp.model.digest import MOST_TURNS, TurnSummary
from pykoclaw_acp.model.events import Event, Text, ToolStarted, UserMessage


class ContextSummary:
    """Follows a log of any length, and sums up its newest turns; without those that begin with the
    messages `forgotten`.
    """

    def __init__(self, forgotten: Collection[str] = ()) -> None:
        self._forgotten = forgotten
        self._count = 0
        self._turns: deque[TurnSummary] = deque(maxlen=MOST_TURNS)
        self._asking = self._passing = False

    def follow(self, event: Event) -> None:
        """The next event."""
        if isinstance(event, UserMessage):
            self._passing = event.message_id in self._forgotten
        if self._passing:
            self._asking = False
            return
        if isinstance(event, UserMessage):
            if not self._asking:
                self._turns.append(TurnSummary())
                self._count += 1
            self._asking = True
            self._turns[-1].ask(str(event.content.get("text") or f"({event.content.get('type')})"))
            return
        self._asking = False
        if not self._turns:
            return
        if isinstance(event, Text) and not event.note:
            self._turns[-1].say(event.text, event.message_id)
        elif isinstance(event, ToolStarted):
            self._turns[-1].use(event.name)

    def text(self) -> str:
        """The newest turns; empty if there are none."""
        return digest.text(list(self._turns), self._count - len(self._turns))
