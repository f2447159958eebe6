"""Where what a subscription delivers joins what its client may have: at its beginning, and where the
client's own turn follows text of another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as replaced

from pykoclaw_acp.model.events import Failure, Text
from pykoclaw_acp.model.folding import Aside
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.markdown import Blocks
from pykoclaw_acp.model.seams import Left, Seam, read
from pykoclaw_acp.sessions.log import SessionLog
from pykoclaw_acp.tasks import Pace, in_pieces

_PIECE: Final = 2000  # characters of text that are gone through in one step


async def left_at(log: SessionLog, seq: int, *, lacks_block: bool = False) -> Left:
    """The place at `seq`, with the message that it lies in. `lacks_block` as in Left."""
    said = await log.said_before(seq)
    message = None if said is None else await in_pieces(read(said))
    return Left(seq, message, lacks_block)


class SeamInserter:
    """Follows the text of one subscription, which begins at a seam or between two messages.

    `ends_line`: what ends the text that is shown will be asked for, once; else the text is not gone
    through, which takes longer than all the rest of a replay.
    """

    def __init__(self, seam: Seam | None = None, *, ends_line: bool = False) -> None:
        self._seam = seam
        self._ends_line = ends_line
        self._shown = False
        self._message = ""
        self._blocks = Blocks()
        self._unread = deque[str]()  # shown, but not gone through

    @property
    def message_id(self) -> str:
        """Id of the message that text belongs to which is inserted now."""
        return "" if self._seam is None else self._seam.rest_id

    def again(self) -> str:
        """Text to be inserted at once."""
        text = "" if self._seam is None else self._seam.again()
        if self._seam is not None and text:
            self._note(self._seam.rest_id, text)
        return text

    def follow(self, logged: Logged) -> tuple[str, Logged]:
        """The next event, as it is delivered, and text to be inserted before it."""
        event, before = logged.event, ""
        if isinstance(event, Aside):
            return before, logged
        seam = self._seam
        if seam is not None and (
            not isinstance(event, Text) or event.message_id != seam.message_id
        ):
            self._seam = seam = None
        if isinstance(event, Text):
            if seam is not None:
                before = seam.before(event.text)
                event = replaced(event, message_id=seam.rest_id)
                logged = replace(logged, event=event)
            self._note(event.message_id, before + event.text)
        elif isinstance(event, Failure | None):
            self._note("", "")
        return before, logged

    def take_ending(self) -> str:
        """Take what ends the text that was shown, once; nothing if there was none."""
        while self._unread:
            self._read_piece()
        ends, self._ends_line = self._ends_line and self._shown, False
        return f"{self._blocks.ending}\n\n" if ends else ""

    async def read(self, pace: Pace) -> None:
        """Go through the text that was shown, in steps: it may be long."""
        while self._unread:
            self._read_piece()
            await pace.step()

    def _read_piece(self) -> None:
        self._blocks.feed(self._unread.popleft())

    def _note(self, message_id: str, text: str) -> None:
        if not self._ends_line:
            return
        if message_id != self._message:
            self._message, self._blocks = message_id, Blocks()
            self._unread.clear()
        self._shown = True
        self._unread.extend(text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
