"""Which connection a front speaks through: its newest."""

from __future__ import annotations

from typing import Protocol


class Speaker(Protocol):
    """A connection's client."""

    superseded: bool


class Fronts:
    """The fronts that are connected. One that has lost its connection sends again, through the next,
    what it has no answer to: whatever the former has not begun by then, it must not begin any more.
    """

    def __init__(self) -> None:
        self._speakers: dict[str, Speaker] = {}

    def speak(self, front: str, speaker: Speaker) -> None:
        """Note that the front speaks through this connection."""
        if (former := self._speakers.get(front)) is not None:
            former.superseded = True
        self._speakers[front] = speaker

    def leave(self, front: str, speaker: Speaker) -> None:
        """The connection has ended."""
        if self._speakers.get(front) is speaker:
            del self._speakers[front]
