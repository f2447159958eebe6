"""Seams: places inside of a message at which a client begins to read, which may lack what was before.

What follows a seam has to be Markdown by itself. A client that keeps only complete blocks, and whose
process has ended, is shown the open block again from its beginning.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pykoclaw_acp.model.markdown import Blocks

MOST_AGAIN: Final = 64 * 1024  # characters; Mitto keeps longer blocks in parts of this size
CONTINUED: Final = "*(continued)*\n\n"
_PIECE: Final = 2000  # characters that are gone through in one step
_MARK: Final = "~"  # ends the id of the message that the rest of a message becomes


@dataclass(frozen=True, slots=True)
class CutMessage:
    """The message that a place in a log lies in: its text up to there.

    `over`: nothing of its turn follows, and somebody was told that the turn has ended.
    """

    message_id: str
    text: str
    over: bool


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A cut message, with the blocks that are open at its end, and where the last part of its text
    begins that is short enough to be shown again: at `last`.
    """

    said: CutMessage
    blocks: Blocks
    last: int
    blocks_at_last: Blocks


def read(said: CutMessage) -> Generator[None, None, ParsedMessage]:
    """Go through the text of a message, in steps: it may be long."""
    text, blocks = said.text, Blocks()
    last = max(len(text) - MOST_AGAIN, 0)
    last = text.find("\n", last) + 1 or last if last else 0
    for at in range(0, last, _PIECE):
        blocks.feed(text[at : min(at + _PIECE, last)])
        yield
    blocks_at_last = blocks.branch()
    for at in range(last, len(text), _PIECE):
        blocks.feed(text[at : at + _PIECE])
        yield
    return ParsedMessage(said, blocks, last, blocks_at_last)


class Seam:
    """A place in a message, at which a client begins to read. `lacks_block`: it may lack the block
    that was open there.
    """

    def __init__(self, message: ParsedMessage, *, lacks_block: bool) -> None:
        said = message.said
        self.message_id = said.message_id
        self.rest_id = said.message_id
        self._message = message
        self._text = said.text
        self._open = said.text[message.blocks.begin :]
        self.lacks_block = lacks_block and not said.over and bool(self._open.strip())
        self._begun = False

    def again(self) -> str:
        """What is shown at once: the open block as far as it came; nothing if that is not needed."""
        if not self.lacks_block:
            return ""
        self._begin()
        if len(self._open) <= MOST_AGAIN:
            return CONTINUED + self._open
        rest = self._text[self._message.last :]
        return CONTINUED + self._message.blocks_at_last.reopening(rest) + rest

    def before(self, rest: str) -> str:
        """What is shown before the rest of the message, which begins so."""
        if self._begun:
            return ""
        shown = self._message.blocks.reopening(rest)
        if shown:
            self._begin()
        self._begun = True
        return shown

    def _begin(self) -> None:
        # Whoever joins chunks by their id would put it behind what it has.
        self.rest_id = f"{self.message_id}{_MARK}{len(self._text)}"
        self._begun = True


class Left(NamedTuple):
    """The place that a client has left, and what it may lack there of the message in which it lies."""

    seq: int
    message: ParsedMessage | None = None
    lacks_block: bool = False

    def seam(self) -> Seam | None:
        """Make a seam for a client that goes on from here; None if the place is in no message."""
        return None if self.message is None else Seam(self.message, lacks_block=self.lacks_block)


def original(message_id: str) -> str:
    """Id of the message in the log, of one that may be the rest of it."""
    begin, mark, number = message_id.rpartition(_MARK)
    return begin if mark and number.isdecimal() else message_id
