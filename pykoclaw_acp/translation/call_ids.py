"""Ids of tool calls that are unique in a session, whatever service makes them.

Claude's own are. Some services that stand in for it count the calls of an answer, and use an id
again: an id of theirs is shown with the turn's, which is the same in every process that names it.
"""

from __future__ import annotations

import re
from typing import Final

_CLAUDES: Final = re.compile(r"toolu_[0-9A-Za-z_]{16,}")
# Of a UUID; enough to tell it from the session's others
_TURN: Final = re.compile(r"([0-9a-f]{8})-")
_NAMED: Final = re.compile(r"(.+)-[0-9a-f]{8}")


class CallIds:
    """Ids under which one session's tool calls are shown, by the id that the service gave last."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def begun(self, call: str, turn: str) -> str:
        """The id by which a call is shown that is made in this turn."""
        found = _TURN.match(turn)
        if found is not None and not _CLAUDES.fullmatch(call):
            self._shown[call] = f"{call}-{found[1]}"
        return self.of(call)

    def of(self, call: str) -> str:
        """The id by which the newest call of this id is shown."""
        return self._shown.get(call, call)

    def restore(self, shown: str) -> None:
        """A call of an earlier look runs."""
        self._shown[given(shown)] = shown


def given(shown: str) -> str:
    """The id that the service gave a call."""
    found = _NAMED.fullmatch(shown)
    return shown if found is None else found[1]
