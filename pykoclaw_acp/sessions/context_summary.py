"""What was said last in a conversation, for a Claude that does not remember it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from pykoclaw_acp.model import deliveries, digest
from pykoclaw_acp.model.contexts import entry_uuid
from pykoclaw_acp.model.digest import MOST_TURNS, TurnSummary
from pykoclaw_acp.model.events import Event, Text, ToolStarted, UserMessage


class ContextSummary:
    """Follows a log of any length, and sums up its newest turns; without those that begin with the
    messages `forgotten`, of which it has met those in `passed`.

    A turn of ours and one of another program may be between each other.
    """

    def __init__(self, forgotten: Collection[str] = ()) -> None:
        self.passed: set[str] = set()
        self._forgotten = forgotten
        self._count = 0
        self._turns: deque[TurnSummary] = deque(maxlen=MOST_TURNS)
        # The newest turn of ours, by its id, and of others; without a summary if it is passed over.
        self._newest: dict[str | None, TurnSummary | None] = {}
        self._last: TurnSummary | None = None  # the newest of both
        self._asking: tuple[str | None] | None = None  # whose prompt may go on

    def follow(self, event: Event, turn_id: str | None = None) -> None:
        """The next event; `turn_id`: of the turn of ours that it belongs to."""
        if isinstance(event, UserMessage):
            self._ask(event, turn_id)
            return
        self._asking = None
        delivered = isinstance(event, Text) and deliveries.is_of_delivery(event.message_id)
        turn = self._last if delivered else self._turn_of(turn_id)
        if turn is None:
            return
        if isinstance(event, Text) and not event.note:
            turn.say(event.text, event.message_id)
        elif isinstance(event, ToolStarted):
            turn.use(event.name)

    def _ask(self, event: UserMessage, turn_id: str | None) -> None:
        if event.message_id in self._forgotten:
            self.passed.add(event.message_id)
            self._begin(turn_id, None)
            self._asking = None
            return
        turn = self._newest.get(turn_id)
        if turn is None or self._asking != (turn_id,):
            turn = TurnSummary()
            self._begin(turn_id, turn)
            self._turns.append(turn)
            self._count += 1
        self._asking = (turn_id,)
        turn.ask(str(event.content.get("text") or f"({event.content.get('type')})"))

    def _begin(self, turn_id: str | None, turn: TurnSummary | None) -> None:
        if turn_id is not None:
            self._newest = {None: self._newest.get(None)}
        self._newest[turn_id] = self._last = turn

    def _turn_of(self, turn_id: str | None) -> TurnSummary | None:
        """What Claude began by itself belongs to the turn of ours before it, and is passed with it."""
        if turn_id is None or turn_id in self._newest:
            return self._newest.get(turn_id)
        if entry_uuid(turn_id) in self._forgotten:
            return None
        ours = next((one for one in self._newest if one is not None), None)
        return self._last if ours is None else self._newest[ours]

    def text(self, left_out: int = 0) -> str:
        """The newest turns; empty if there are none. `left_out`: turns before those that it followed."""
        return digest.text(list(self._turns), left_out + self._count - len(self._turns))
