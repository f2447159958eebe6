"""Where the newest turns of a log begin."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.events import (
    Plan,
    TitleChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UserMessage,
    decode,
)
from pykoclaw_acp.model.folding import PLAN
from pykoclaw_acp.model.log import Logged, TurnsPlace
from pykoclaw_acp.store import conversion, open_calls
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sql import LOG_KEY, kind, tag

MAX_SEQ: Final = (1 << 63) - 1
HEAD: Final = 74  # characters of a message's row: its kind, and the first 36 of its id
# A prompt that was refused before it was sent to Claude begins no turn: it belongs to the one before.
_MESSAGES: Final = (
    "FROM acp_log e LEFT JOIN acp_turns t ON t.acp_session_id = ? AND t.position = e.turn"
    f" WHERE e.log_key = {LOG_KEY} AND e.kind = {kind(UserMessage)}"
    " AND (t.turn_id IS NULL OR t.dispatched_at IS NOT NULL OR t.started_at IS NOT NULL)"
)
_BEGINNINGS: Final = (
    f"SELECT e.first_seq, SUBSTR(e.payload, 1, {HEAD}) {_MESSAGES}"
    " AND e.seq < ? ORDER BY e.seq DESC LIMIT ?"
)
_COUNT: Final = (
    f"SELECT COUNT(DISTINCT SUBSTR(e.payload, 1, {HEAD})) {_MESSAGES} AND e.first_seq < ?"
)
_OF_KIND: Final = (
    "SELECT seq, source_uuid IS NOT NULL, payload FROM {} AND seq <= ? AND kind = ?"
    " ORDER BY seq DESC LIMIT 1"
)
_NEWEST: Final = (
    f"SELECT * FROM ({_OF_KIND.format(f'acp_log WHERE log_key = {LOG_KEY}')}) UNION ALL"  # noqa: S608
    f" SELECT * FROM ({_OF_KIND.format('acp_events WHERE acp_session_id = ?')})"
    " ORDER BY 1 DESC LIMIT 1"
)


async def find(database: Database, session_id: str, turns: int) -> TurnsPlace:
    """The place before the newest `turns` turns that were run; 0 if there are no more, or if the log
    has another form and the database cannot be written.
    """
    try:
        await conversion.complete(database, session_id)
    except StoreUnavailable:
        return TurnsPlace(0, 0)
    # A message of several blocks has several rows, which begin alike.
    begins: dict[str, int] = {}
    below, limit = MAX_SEQ, 2 * turns + 1
    while rows := await database.read(_BEGINNINGS, (session_id, session_id, below, limit)):
        for first, head in rows:
            if head not in begins and len(begins) == turns:
                place = begins.popitem()[1]
                ((left_out,),) = await database.read(_COUNT, (session_id, session_id, place))
                return TurnsPlace(place - 1, left_out)
            begins[head] = first
        below = rows[-1][0]
    return TurnsPlace(0, 0)


async def in_effect(database: Database, session_id: str, upto: int) -> list[Logged]:
    """The newest events up to this place that still hold there."""
    rows: list[tuple[Any, ...]] = [*await open_calls.find(database, session_id, upto)]
    for one in (Plan, TitleChanged):
        rows = [*rows, *await database.read(_NEWEST, (session_id, upto, tag(one)) * 2)]
    return holding([_logged(*row) for row in sorted(rows, key=itemgetter(0))])


def holding(events: Sequence[Logged]) -> list[Logged]:
    """Return the events that are in effect after the last of them."""
    held: dict[str, Logged] = {}
    for one in events:
        match one.event:
            case ToolStarted():
                held[f"tool {one.event.tool_call_id}"] = one
            case ToolProgressed():
                if f"tool {one.event.tool_call_id}" in held:
                    held[f"shown {one.event.tool_call_id}"] = one
            case ToolEnded():
                held.pop(f"tool {one.event.tool_call_id}", None)
                held.pop(f"shown {one.event.tool_call_id}", None)
            case Plan():
                held[PLAN] = one
            case TitleChanged():
                held["title"] = one
    plan = held.get(PLAN)
    if (
        plan is not None
        and isinstance(plan.event, Plan)
        and all(entry.status == "completed" for entry in plan.event.entries)
    ):
        del held[PLAN]
    return sorted(held.values(), key=lambda one: one.seq)


def _logged(seq: int, imported: int | bool, payload: str) -> Logged:
    return Logged(seq, None, decode(payload), len(payload), imported=bool(imported))
