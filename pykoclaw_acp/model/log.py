"""An event with its position in a session's log."""

from __future__ import annotations

from dataclasses import dataclass

from pykoclaw_acp.model.events import Event


@dataclass(frozen=True, slots=True)
class TurnsPlace:
    """Where the newest turns of a log begin: after the position `after`, before which there are
    `left_out` turns. A turn begins with a message of the user's, whoever has sent it; what was
    refused before it was sent to Claude belongs to the turn before.
    """

    after: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Logged:
    """An event with its position; `event` is None if the row is unreadable. `size`: of the row in
    characters.

    A merged event covers `count` positions; `seq` is the last of them. `imported`: of a tool call
    that another program has made, as far as whoever has read it says so.
    """

    seq: int
    turn_id: str | None
    event: Event | None
    size: int = 0
    count: int = 1
    imported: bool = False

    @property
    def first(self) -> int:
        """First position that it covers."""
        return self.seq - self.count + 1
