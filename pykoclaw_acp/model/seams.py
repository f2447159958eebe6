"""Seams: places inside of a message at which a client begins to read, which may lack what was before.

What follows a seam has to be Markdown by itself. A client that keeps only complete blocks, and whose
process has ended, is shown the open block again from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pykoclaw_acp.model.markdown import Blocks

MOST_AGAIN: Final = 64 * 1024  # characters; Mitto keeps longer blocks in parts of this size
CONTINUED: Final = "*(continued)*\n\n"
_MARK: Final = "~"  # ends the id of the message that the rest of a message becomes


@dataclass(frozen=True, slots=True)
class CutMessage:
    """The message that a place in a log lies in: its text up to there.

    `over`: nothing of its turn follows, and somebody was told that the turn has ended.
    """

    message_id: str
    text: str
    over: bool


class Seam:
    """A place in a message, at which a client begins to read. `lacks_block`: it may lack the block
    that was open there.
    """

    def __init__(self, said: CutMessage, *, lacks_block: bool) -> None:
        self.message_id = said.message_id
        self.rest_id = said.message_id
        self._text = said.text
        self.lacks_block = (
            lacks_block and not said.over and bool(said.text[Blocks(said.text).begin :].strip())
        )
        self._begun = False

    def again(self) -> str:
        """What is shown at once: the open block as far as it came; nothing if that is not needed."""
        if not self.lacks_block:
            return ""
        self._begin()
        return CONTINUED + self._from(Blocks(self._text).begin)

    def before(self, rest: str) -> str:
        """What is shown before the rest of the message, which begins so."""
        if self._begun:
            return ""
        shown = Blocks(self._text).reopening(rest)
        if shown:
            self._begin()
        self._begun = True
        return shown

    def _begin(self) -> None:
        # Whoever joins chunks by their id would put it behind what it has.
        self.rest_id = f"{self.message_id}{_MARK}{len(self._text)}"
        self._begun = True

    def _from(self, begin: int) -> str:
        if len(self._text) - begin <= MOST_AGAIN:
            return self._text[begin:]
        line = self._text.find("\n", len(self._text) - MOST_AGAIN) + 1
        cut = line or len(self._text) - MOST_AGAIN
        rest = self._text[cut:]
        return Blocks(self._text[:cut]).reopening(rest) + rest


class Left(NamedTuple):
    """The place that a client has left, and what it may lack there of the message in which it lies."""

    seq: int
    said: CutMessage | None = None
    lacks_block: bool = False

    def seam(self) -> Seam | None:
        """Make a seam for a client that goes on from here; None if the place is in no message."""
        return None if self.said is None else Seam(self.said, lacks_block=self.lacks_block)


def original(message_id: str) -> str:
    """Id of the message in the log, of one that may be the rest of it."""
    begin, mark, number = message_id.rpartition(_MARK)
    return begin if mark and number.isdecimal() else message_id
