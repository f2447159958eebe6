"""Text of messages in a transcript, as it comes: a line of it that stands there like one of the
transcript's own is indented.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

INDENT: Final = "  "
_HELD: Final = 200  # characters of a line that wait for what it becomes


class Apart:
    """The text of one message after another. `own`: whole lines of the transcript; `marks`: what
    stands before a space at the beginning of others.
    """

    def __init__(self, own: Collection[str], marks: Collection[str]) -> None:
        self._own = own
        self._marks = marks
        self._held = ""  # the beginning of a line that may become like one of ours
        self._inside = False  # of a line whose beginning was given

    @property
    def fresh(self) -> bool:
        """Whether the text so far ends with a line."""
        return not self._inside and not self._held

    def piece(self, text: str) -> str:
        """What can be shown of the text so far."""
        *lines, last = (self._held + text).split("\n")
        self._held = ""
        made = "".join(f"{self._line(line)}\n" for line in lines)
        if last and not self._inside and len(last) < _HELD and self._may_become_own(last):
            self._held = last
            return made
        if last:
            made += self._line(last)
            self._inside = True
        return made

    def rest(self) -> str:
        """What was held back; the message ends."""
        rest, self._held = self._line(self._held), ""
        self._inside = False
        return rest

    def _line(self, line: str) -> str:
        inside, self._inside = self._inside, False
        return line if inside or not self._is_own(line) else INDENT + line

    def _is_own(self, line: str) -> bool:
        words = _seen(line)
        return words in self._own or words.partition(" ")[0] in self._marks

    def _may_become_own(self, line: str) -> bool:
        words = _seen(line)
        return any(one.startswith(words) for one in (*self._own, *self._marks))


def _seen(line: str) -> str:
    return "".join(one for one in line if one.isprintable()).strip()
