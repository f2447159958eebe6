"""Tool calls of a log that have begun and not ended at a place in it, however long ago. Part of the
log may be in the form of an older version.
"""

from __future__ import annotations

import re
from typing import Final

from pykoclaw_acp.model.events import ToolEnded, ToolProgressed, ToolStarted
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.readers import Rows
from pykoclaw_acp.store.sql import LOG_KEY, kinds, places, tag

_Row = tuple[int, int, str]
"""`seq`, whether it was imported, and the payload."""

PAGE: Final = 1000  # rows
HEAD: Final = 280  # characters of a payload: its kind and the id of the call, which come first
_ID: Final = re.compile(r'"tool_call_id":"([^"\\]*(?:\\.[^"\\]*)*)"')
_OLD: Final = "acp_events WHERE acp_session_id = ?"
_NEW: Final = f"acp_log WHERE log_key = {LOG_KEY}"
_NEWEST: Final = (
    f"SELECT seq, kind, SUBSTR(payload, 1, {HEAD}) FROM {{}} AND seq < ?"  # noqa: S608  constants
    f" AND kind IN {kinds(ToolStarted, ToolProgressed, ToolEnded)} ORDER BY seq DESC LIMIT ?"
)
_HEADS: Final = (
    f"SELECT * FROM ({_NEWEST.format(_NEW)}) UNION ALL SELECT * FROM ({_NEWEST.format(_OLD)})"  # noqa: S608
    " ORDER BY 1 DESC LIMIT ?"
)
_WHOLE: Final = "SELECT seq, source_uuid IS NOT NULL, payload FROM {} AND seq IN {}"


async def find(database: Database, session_id: str, upto: int) -> list[_Row]:
    """The beginning of each call that is open after the event at `upto`, and what it shows there,
    in the order of the log. An end that cannot be read is none.
    """
    return await database.read_with(lambda rows: _find(rows, session_id, upto))


def _find(rows: Rows, session_id: str, upto: int) -> list[_Row]:
    over: set[str] = set()  # calls of which nothing older is looked for
    shown: dict[str, int] = {}
    found: list[int] = []
    below = upto + 1
    while page := rows(_HEADS, (session_id, below, PAGE) * 2 + (PAGE,)):
        for seq, kind, head in page:
            # Bytes, which SQLite keeps in a column of text, are no payload.
            named = _ID.search(head) if isinstance(head, str) else None
            if named is None or named[1] in over:
                continue
            call = named[1]
            if kind == tag(ToolProgressed):
                shown.setdefault(call, seq)
                continue
            over.add(call)
            if kind == tag(ToolStarted):
                found += [seq, *([shown[call]] if call in shown else [])]
        below = page[-1][0]
    found.sort()
    whole: list[_Row] = []
    for at in range(0, len(found), PAGE):
        some = found[at : at + PAGE]
        read = " UNION ALL ".join(_WHOLE.format(table, places(some)) for table in (_NEW, _OLD))
        whole += [
            (int(seq), int(imported), str(payload))
            for seq, imported, payload in rows(f"{read} ORDER BY 1", (session_id, *some) * 2)
        ]
    return whole
