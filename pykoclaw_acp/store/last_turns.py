"""Where the newest turns of a log begin."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.log import TurnsPlace
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sql import LOG_KEY

HEAD: Final = 74  # characters of a message's row: its kind, and the first 36 of its id
# A message of several blocks has several rows, which begin alike.
_BEGINNINGS: Final = (
    f"SELECT MIN(first_seq), SUBSTR(payload, 1, {HEAD}) FROM acp_log WHERE log_key = {LOG_KEY}"  # noqa: S608
    " AND kind = 'user_message' GROUP BY 2 ORDER BY 1 DESC LIMIT ?"
)
_COUNT: Final = (
    f"SELECT COUNT(DISTINCT SUBSTR(payload, 1, {HEAD})) FROM acp_log WHERE log_key = {LOG_KEY}"  # noqa: S608
    " AND kind = 'user_message' AND first_seq < ?"
)


async def find(database: Database, session_id: str, turns: int) -> TurnsPlace:
    """The place before the newest `turns` turns; 0 if there are no more."""
    rows = await database.read(_BEGINNINGS, (session_id, turns))
    if len(rows) < turns:
        return TurnsPlace(0, 0)
    ((left_out,),) = await database.read(_COUNT, (session_id, rows[-1][0]))
    return TurnsPlace(rows[-1][0] - 1 if left_out else 0, left_out)
