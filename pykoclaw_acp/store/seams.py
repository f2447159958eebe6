"""The message that a place in a log lies in, read backwards from there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from pykoclaw_acp.model.events import Text, decode
from pykoclaw_acp.model.folding import Aside
from pykoclaw_acp.model.seams import CutMessage
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.folding import lengths
from pykoclaw_acp.store.sql import CLIENT, LOG_KEY, UNFINISHED, tag

PAGE: Final = 5000  # rows
# Characters of the message; the beginning of a longer one is not looked at
MOST: Final = 1024 * 1024
LATE: Final = 120_000  # ms after a turn has ended; then nobody waits for its end any more
_ASIDE: Final = tuple(map(tag, Aside.__args__))
_COLUMNS: Final = "first_seq, seq, turn, kind, cuts, payload"
_AT: Final = (
    f"SELECT {_COLUMNS} FROM acp_log WHERE log_key = {LOG_KEY} AND seq >= ? ORDER BY seq LIMIT 1"  # noqa: S608
)
_BEFORE: Final = (
    f"SELECT {_COLUMNS} FROM acp_log WHERE log_key = {LOG_KEY} AND seq < ?"  # noqa: S608
    " ORDER BY seq DESC LIMIT ?"
)
_OVER: Final = (
    f"SELECT state NOT IN {UNFINISHED} AND COALESCE(last_seq, 0) <= ?"  # noqa: S608  constant
    f" AND (answered_at IS NOT NULL OR origin <> {CLIENT} OR COALESCE(ended_clock, 0) < ?)"
    " FROM acp_turns WHERE acp_session_id = ? AND position = ?"
)


async def said_before(database: Database, session_id: str, seq: int, now: int) -> CutMessage | None:
    """The message that the newest event up to `seq` is a part of; None if it is no message of
    Claude's. `now`: ms, own clock.
    """
    found = _Message()
    rows = await database.read(_AT, (session_id, seq))
    rows = [one for one in rows if one[0] <= seq]
    goes_on = found.take(rows, seq)
    below = rows[0][0] if rows else seq + 1
    while goes_on and (rows := await database.read(_BEFORE, (session_id, below, PAGE))):
        goes_on = found.take(rows, seq)
        below = rows[-1][0]
    if found.message_id is None:
        return None
    over = await database.read(_OVER, (seq, now - LATE, session_id, found.turn))
    return CutMessage(found.message_id, found.text, bool(over[0][0]) if over else True)


class _Message:
    """A message, from its last part to its first."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self.turn: int | None = None
        self._parts: list[str] = []
        self._size = 0

    @property
    def text(self) -> str:
        return "".join(reversed(self._parts))

    def take(self, rows: Sequence[tuple[Any, ...]], seq: int) -> bool:
        """Take rows, the newest first, up to `seq`; False if there are no more parts."""
        for first, last, turn, kind, cuts, payload in rows:
            if kind in _ASIDE:
                continue
            event = decode(payload) if kind == tag(Text) else None
            if not isinstance(event, Text) or event.note:
                return False
            if self.message_id not in (None, event.message_id):
                return False
            text = event.text
            if last > seq and cuts:
                text = text[: sum(islice(lengths(cuts), seq - first + 1))]
            self.message_id, self.turn = event.message_id, turn
            self._parts.append(text)
            self._size += len(text)
        return self._size < MOST
