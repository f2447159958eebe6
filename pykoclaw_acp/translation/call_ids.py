"""Ids of tool calls that are unique in a session, whatever service makes them.

Claude's own are. Some services that stand in for it count the calls of an answer, and use an id
again: an id of theirs is shown with the turn's, which is the same in every process that names it,
and with a number where one turn has several such calls.
"""

from __future__ import annotations

import re
from binascii import crc32
from typing import Final

_CLAUDES: Final = re.compile(r"toolu_[0-9A-Za-z_]{16,}")
# Of a UUID; enough to tell it from the session's others
_TURN: Final = re.compile(r"([0-9a-f]{8})-")
_NAMED: Final = re.compile(r"(.+)-[0-9a-f]{8}(?:\.(\d{1,9}))?")
MOST: Final = 200  # ids of calls with a result that another look has to know


class CallIds:
    """Ids under which one session's tool calls are shown, by the id that the service gave last; or
    those `inside` a call that is shown under this id.
    """

    def __init__(self, inside: str = "") -> None:
        # Its calls may have the ids of others of the turn
        self._turn = f"{crc32(inside.encode()):08x}-" if inside != given(inside) else ""
        self._shown: dict[str, str] = {}
        self._over: dict[str, None] = {}  # whose newest call has a result

    def begun(self, call: str, turn: str = "") -> str:
        """The id by which a call is shown that is made in this turn."""
        found = _TURN.match(turn or self._turn)
        if found is not None and not _CLAUDES.fullmatch(call):
            shown, before = f"{call}-{found[1]}", self.of(call)
            named = _NAMED.fullmatch(before) if before.startswith(shown) else None
            if named is None or call in self._over:
                number = "" if named is None else f".{int(named[2] or 1) + 1}"
                self._shown[call] = f"{shown}{number}"
                self._over.pop(call, None)
        return self.of(call)

    def ended(self, call: str) -> None:
        """The call has a result: what has its id from now on is another one."""
        if self.of(call) != call:
            self._over.pop(call, None)  # it is the newest now
            self._over[call] = None

    @property
    def over(self) -> list[str]:
        """The calls with a result that another look has to know."""
        return [self._shown[call] for call in list(self._over)[-MOST:]]

    def of(self, call: str) -> str:
        """The id by which the newest call of this id is shown."""
        return self._shown.get(call, call)

    def restore(self, shown: str, *, over: bool = False) -> None:
        """A call of an earlier look runs, or is over."""
        self._shown[given(shown)] = shown
        if over:
            self.ended(given(shown))


def given(shown: str) -> str:
    """The id that the service gave a call."""
    found = _NAMED.fullmatch(shown)
    return shown if found is None else found[1]
