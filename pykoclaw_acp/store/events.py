"""Sessions' logs: `acp_log`, and `acp_events` with rows of older versions that are not converted
yet.

Each seq of a log is in one of the two tables. Queries read both, so that conversion does not show.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

import structlog

from pykoclaw_acp.long_texts import finished
from pykoclaw_acp.model import folding
from pykoclaw_acp.model.events import (
    WHY,
    Event,
    OpenTools,
    Plan,
    PlanEntry,
    Text,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UserMessage,
    decode,
    encode,
)
from pykoclaw_acp.model.folding import MessagePiece
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.store import open_calls, permissions
from pykoclaw_acp.store.condition import StoreDamaged
from pykoclaw_acp.store.database import Database, NewEvent
from pykoclaw_acp.store.folding import rest
from pykoclaw_acp.store.logs import of_turn
from pykoclaw_acp.store.sql import LOG_KEY, kind, kinds, tag
from pykoclaw_acp.tasks import in_pieces
from pykoclaw_acp.translation.tools import asked_input

PAGE_SIZE: Final = 1024 * 1024  # characters after which a page ends
LAST_SEQ: Final = 2**63 - 1  # that a row can have
PLAN_WITHIN: Final = 20_000  # seqs at the end of a log in which a plan is looked for
# Each part has the limit: else all that follows would be sorted for every page.
_PAGE: Final = (
    "SELECT * FROM (SELECT e.first_seq, e.seq, t.turn_id, e.cuts, e.payload FROM"  # noqa: S608  constant
    f" (SELECT * FROM acp_log WHERE log_key = {LOG_KEY} AND seq > ? ORDER BY seq LIMIT ?) AS e"
    " LEFT JOIN acp_turns t ON t.acp_session_id = ? AND t.position = e.turn) AS new"
    " UNION ALL SELECT * FROM (SELECT seq, seq, turn_id, NULL, payload FROM acp_events"
    " WHERE acp_session_id = ? AND seq > ? ORDER BY seq LIMIT ?) AS old"
    " ORDER BY 2 LIMIT ?"
)
_CALLS: Final = kinds(ToolStarted, ToolEnded)
_TOOL_EVENTS: Final = (  # answered by the index acp_events_tools alone
    "SELECT seq, payload FROM acp_events WHERE acp_session_id = ? AND seq IN (SELECT seq FROM acp_events"  # noqa: S608  constant
    f" WHERE acp_session_id = ? AND seq >= ? AND kind IN {_CALLS})"
    " UNION ALL SELECT e.seq, e.payload FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key"
    f" WHERE s.acp_session_id = ? AND e.seq >= ? AND e.kind IN {_CALLS} ORDER BY 1"
)
_FIRST_OF_WORKER: Final = (
    "SELECT MIN(COALESCE(t.first_seq, (SELECT MIN(e.seq) FROM acp_events e WHERE e.turn_id = t.turn_id)))"
    " FROM acp_turns t WHERE t.acp_session_id = ? AND t.epoch = ?"
)
_PROGRESS: Final = (
    "SELECT e.payload FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key"  # noqa: S608  constant
    f" WHERE s.acp_session_id = ? AND e.seq >= ? AND e.kind = {kind(ToolProgressed)} ORDER BY e.seq"
)
_PLAN: Final = (
    "SELECT * FROM (SELECT e.seq, e.payload FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key"  # noqa: S608
    f" WHERE s.acp_session_id = ? AND e.kind = {kind(Plan)}"
    " AND e.seq <= ? AND e.seq >"
    " (SELECT MAX(n.seq) - ? FROM acp_log n WHERE n.log_key = s.log_key AND n.seq <= ?)"
    " ORDER BY e.seq DESC LIMIT 1)"
    " UNION ALL SELECT * FROM (SELECT o.seq, o.payload FROM acp_events o"
    f" WHERE o.acp_session_id = ? AND o.kind = {kind(Plan)} AND o.seq <= ? AND o.seq >"
    " (SELECT MAX(n.seq) - ? FROM acp_events n WHERE n.acp_session_id = o.acp_session_id AND n.seq <= ?)"
    " ORDER BY o.seq DESC LIMIT 1)"
    " ORDER BY 1 DESC LIMIT 1"
)
_NEXT_PLAN: Final = (  # and what may begin a turn
    f"SELECT seq, payload FROM acp_log WHERE log_key = {LOG_KEY} AND seq > ? AND turn IS NULL"  # noqa: S608
    f" AND (kind IN {kinds(Plan, UserMessage)}"
    f" OR (kind = {kind(Text)} AND INSTR(payload, '{WHY}\"') > 0)) ORDER BY seq LIMIT 4"
)
_KINDS = {kind: tag(kind) for kind in Event.__args__}

log: Final = structlog.get_logger()


def row(session_id: str, turn_id: str | None, event: Event) -> NewEvent:
    """The event as a row of the log."""
    state = folding.state(event)
    return NewEvent(
        session_id,
        turn_id,
        _KINDS[type(event)],
        encode(event),
        message=folding.message(event),
        weight=folding.weight(event) if isinstance(event, MessagePiece) else 0,
        state=of_turn(state, turn_id) if state in folding.OF_TURN else state,
        passing=folding.passing(event),
        spares=folding.spares(event),
    )


def imported(session_id: str, source_uuid: str, event: Event) -> NewEvent:
    """An event from a transcript as a row of the log: complete, of no turn, and never folded."""
    return NewEvent(session_id, None, _KINDS[type(event)], encode(event), source_uuid)


def rows(session_id: str, turn_id: str | None, events: Sequence[Event]) -> tuple[NewEvent, ...]:
    """Events as rows of the log."""
    return finished(rows_in_steps(session_id, turn_id, events))


def rows_in_steps(
    session_id: str, turn_id: str | None, events: Sequence[Event]
) -> Generator[None, None, tuple[NewEvent, ...]]:
    """Make the rows of events that may be long: encode one in each step."""
    done: list[NewEvent] = []
    for event in events:
        done.append(row(session_id, turn_id, event))
        yield
    return tuple(done)


async def read(database: Database, session_id: str, after: int, limit: int) -> list[Logged]:
    """A page of the log after a cursor, in order; the event of an unreadable row is None.

    If the cursor lies inside of a folded message, the first event is the rest of it.
    """
    found = await database.read(_PAGE, _page(session_id, after, limit), PAGE_SIZE)
    return await in_pieces(_decoded(after, found))


def _page(session_id: str, after: int, limit: int) -> tuple[object, ...]:
    """Parameters of the query for a page."""
    return (session_id, after, limit, session_id, session_id, after, limit, limit)


def _decoded(after: int, rows: Sequence[tuple[Any, ...]]) -> Generator[None, None, list[Logged]]:
    done: list[Logged] = []
    for one in rows:
        done.append(_logged(after, one))
        yield
    return done


def _logged(after: int, row: tuple[Any, ...]) -> Logged:
    """An event of a row of _PAGE, as far as it is after this position."""
    first, seq, turn_id, cuts, payload = row
    event = rest(decode(payload), first, cuts, after)
    return Logged(seq, turn_id, event, len(payload), count=seq - max(first - 1, after))


async def open_tools(database: Database, session_id: str, epoch: int) -> OpenTools:
    """Tool calls that the worker of this epoch has started and not ended; of a damaged log those
    that were found before the damage.
    """
    tools = OpenTools()
    try:
        await _follow(database, session_id, epoch, tools)
    except StoreDamaged as error:
        log.error("A session is damaged", action="session_damaged", error=error.message)
    return tools


async def _follow(database: Database, session_id: str, epoch: int, tools: OpenTools) -> None:
    ((first,),) = await database.read(_FIRST_OF_WORKER, (session_id, epoch))
    if first is None:
        return
    found = await database.read(_TOOL_EVENTS, (session_id, session_id, first, session_id, first))
    for _, payload in found:
        tools.follow(decode(payload))
    if any(tools):  # what they show last; replaced states have no rows
        for one in await permissions.about_calls(database, session_id, list(tools)):
            tools.ask(one.request.tool_call_id, asked_input(one.request.input))
        for (payload,) in await database.read(_PROGRESS, (session_id, first)):
            tools.follow(decode(payload))


async def last_plan(database: Database, session_id: str, upto: int | None) -> tuple[PlanEntry, ...]:
    """The entries of the newest plan among the newest rows up to there; empty if there is none."""
    last = LAST_SEQ if upto is None else upto
    found = await database.read(_PLAN, (session_id, last, PLAN_WITHIN, last) * 2, PAGE_SIZE)
    plan = decode(found[0][1]) if found else None
    return plan.entries if isinstance(plan, Plan) else ()


async def plan_goes_on(database: Database, session_id: str, seq: int) -> bool:
    """Whether the same imported turn has a later list of tasks than the one at this place."""
    while rows := await database.read(_NEXT_PLAN, (session_id, seq)):
        for place, payload in rows:
            one = Logged(place, None, decode(payload))
            if isinstance(one.event, Plan) or folding.begins(one):
                return isinstance(one.event, Plan) and bool(one.event.entries)
        seq = rows[-1][0]
    return False


async def open_tools_upto(database: Database, session_id: str, upto: int) -> OpenTools:
    """Tool calls that have started up to this place, and not ended up to there."""
    tools = OpenTools()
    for _, _, payload in await open_calls.find(database, session_id, upto):
        tools.follow(decode(payload))
    return tools
