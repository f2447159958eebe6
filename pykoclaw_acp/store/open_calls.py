"""Tool calls of a log that have begun and not ended at a place in it, however long ago."""

from __future__ import annotations

import re
from typing import Final

from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.readers import Rows
from pykoclaw_acp.store.sql import LOG_KEY, places

Row = tuple[int, int, str]
"""`seq`, whether it was imported, and the payload."""

PAGE: Final = 1000  # rows
HEAD: Final = 280  # characters of a payload: its kind and the id of the call, which come first
_ID: Final = re.compile(r'"tool_call_id":"([^"\\]*(?:\\.[^"\\]*)*)"')
_HEADS: Final = (
    f"SELECT seq, kind, SUBSTR(payload, 1, {HEAD}) FROM acp_log WHERE log_key = {LOG_KEY} AND seq < ?"  # noqa: S608
    " AND kind IN ('tool_started', 'tool_progressed', 'tool_ended') ORDER BY seq DESC LIMIT ?"
)


async def find(database: Database, session_id: str, upto: int) -> list[Row]:
    """The beginning of each call that is open after the event at `upto`, and what it shows there,
    in the order of the log. An end that cannot be read is none.
    """
    return await database.read_with(lambda rows: _find(rows, session_id, upto))


def _find(rows: Rows, session_id: str, upto: int) -> list[Row]:
    over: set[str] = set()  # calls of which nothing older is looked for
    shown: dict[str, int] = {}
    found: list[int] = []
    below = upto + 1
    while page := rows(_HEADS, (session_id, below, PAGE)):
        for seq, kind, head in page:
            # Bytes, which SQLite keeps in a column of text, are no payload.
            named = _ID.search(head) if isinstance(head, str) else None
            if named is None or named[1] in over:
                continue
            call = named[1]
            if kind == "tool_progressed":
                shown.setdefault(call, seq)
                continue
            over.add(call)
            if kind == "tool_started":
                found += [seq, *([shown[call]] if call in shown else [])]
        below = page[-1][0]
    read = (
        f"SELECT seq, source_uuid IS NOT NULL, payload FROM acp_log WHERE log_key = {LOG_KEY}"  # noqa: S608
        f" AND seq IN {{}} ORDER BY seq"
    )
    found.sort()
    whole: list[Row] = []
    for at in range(0, len(found), PAGE):
        some = found[at : at + PAGE]
        whole += [
            (int(seq), int(imported), str(payload))
            for seq, imported, payload in rows(read.format(places(some)), (session_id, *some))
        ]
    return whole
