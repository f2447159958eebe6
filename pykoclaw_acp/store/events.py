"""`acp_events`: the sessions' logs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from pykoclaw_acp.protocol.long_texts import finished
from pykoclaw_acp.sessions.events import Event, OpenTools, decode, encode
from pykoclaw_acp.sessions.ports import Logged
from pykoclaw_acp.store.database import Database, NewEvent
from pykoclaw_acp.tasks import in_pieces

PAGE_SIZE: Final = 4 * 1024 * 1024  # characters of a page after which no further event is read
_TOOL_EVENTS: Final = (  # so written that the index acp_events_tools alone says which rows these are
    "SELECT payload FROM acp_events WHERE acp_session_id = ? AND seq IN (SELECT seq FROM acp_events"
    " WHERE acp_session_id = ? AND seq >= ? AND kind IN ('tool_started', 'tool_ended')) ORDER BY seq"
)
_FIRST_OF_WORKER: Final = (
    "SELECT MIN(e.seq) FROM acp_turns t JOIN acp_events e ON e.turn_id = t.turn_id"
    " WHERE t.acp_session_id = ? AND t.epoch = ?"
)
_KINDS = {kind: str(kind.__struct_config__.tag) for kind in Event.__args__}


def rows(session_id: str, turn_id: str | None, events: Sequence[Event]) -> tuple[NewEvent, ...]:
    """Events as the log takes them."""
    return finished(rows_in_steps(session_id, turn_id, events))


def rows_in_steps(
    session_id: str, turn_id: str | None, events: Sequence[Event]
) -> Generator[None, None, tuple[NewEvent, ...]]:
    """The same for events that may be long, one in each step."""
    done: list[NewEvent] = []
    for event in events:
        done.append(NewEvent(session_id, turn_id, _KINDS[type(event)], encode(event)))
        yield
    return tuple(done)


async def read(database: Database, session_id: str, after: int, limit: int) -> list[Logged]:
    """The log after `after`, in order, up to `limit` events and a size; an unreadable row has no event."""
    found = await database.read(
        "SELECT seq, turn_id, payload FROM ("
        "SELECT seq, turn_id, payload, SUM(LENGTH(payload)) OVER (ORDER BY seq) - LENGTH(payload) AS before"
        " FROM acp_events WHERE acp_session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        ") AS page WHERE before < ? ORDER BY seq",
        (session_id, after, limit, PAGE_SIZE),
    )
    return await in_pieces(_decoded(found))


def _decoded(rows: Sequence[tuple[int, str | None, str]]) -> Generator[None, None, list[Logged]]:
    done: list[Logged] = []
    for seq, turn_id, payload in rows:
        done.append(Logged(seq, turn_id, decode(payload), len(payload)))
        yield
    return done


async def open_tools(database: Database, session_id: str, epoch: int) -> OpenTools:
    """Tool calls that the worker of this epoch has started and not ended."""
    tools = OpenTools()
    ((first,),) = await database.read(_FIRST_OF_WORKER, (session_id, epoch))
    if first is None:
        return tools
    found = await database.read(_TOOL_EVENTS, (session_id, session_id, first))
    for (payload,) in found:
        tools.follow(decode(payload))
    return tools
