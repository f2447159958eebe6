"""An event at its place in a session's log."""

from __future__ import annotations

from dataclasses import dataclass

from pykoclaw_acp.model.events import Event


@dataclass(frozen=True, slots=True)
class Logged:
    """An event at its place in a session's log; `event` is None where the row cannot be read. `size` is the row's.

    Pieces of a message may come as one event: it stands for `count` of them, and is named by the last one's `seq`.
    """

    seq: int
    turn_id: str | None
    event: Event | None
    size: int = 0
    count: int = 1

    @property
    def first(self) -> int:
        """The first place that it stands for."""
        return self.seq - self.count + 1
