"""What turns have led to, as the journal and the log have it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import partial
from typing import Final

from pykoclaw_acp.model import work
from pykoclaw_acp.model.events import WHY, Event, Text, ToolEnded, ToolStarted, UserMessage, decode
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.model.work import Work, joined, led_to
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.readers import Rows
from pykoclaw_acp.store.sql import BACKGROUND, kind, kinds
from pykoclaw_acp.store.turns import failure_of

OTHERS: Final = "others"  # stands for the ids of turns that a turn has not led to


async def of_turn(database: Database, turn_id: str, tools: Collection[str] | None = None) -> Work:
    """What a turn has led to; `tools`: as in `led_to`."""
    return await database.read_with(partial(_of_turn, turn_id, tools))


async def words(database: Database, *turn_ids: str) -> str:
    """What Claude has said in these turns, as `front.words_of_claude` joins its pieces."""
    return await database.read_with(
        lambda rows: joined([_words(one, rows) for one in turn_ids], "\n\n")
    )


async def blocked(database: Database, turn_id: str) -> str | None:
    """What the log says of the hooks that have taken the turn's prompt away, as `model.work` finds it."""
    return await database.read_with(lambda rows: work.blocked(_events(turn_id, rows)))


# These run in a reader's thread: a turn may have thousands of events with long outputs.


def _of_turn(turn_id: str, tools: Collection[str] | None, rows: Rows) -> Work:
    found = rows(
        "SELECT b.turn_id, b.position, b.state, b.error, b.stop_reason, b.usage FROM acp_turns t"  # noqa: S608  constants
        " JOIN acp_turns b ON b.acp_session_id = t.acp_session_id"
        f" WHERE t.turn_id = ? AND (b.turn_id = t.turn_id OR (b.origin = {BACKGROUND}"
        " AND b.position > t.position AND b.first_seq > t.first_seq)) ORDER BY b.position",
        (turn_id,),
    )
    turns = [
        (one, Outcome(TurnState(state), stop, failure_of(error), json.loads(used or "null")))
        for one, _, state, error, stop, used in found
    ]
    ids = {position: one for one, position, *_ in found}
    # A call ends outside of turns, or with a turn of others if the worker is lost in that. What
    # explains a turn comes before it.
    logged = rows(
        "SELECT e.turn, e.payload FROM acp_turns t"  # noqa: S608  constants
        " JOIN acp_sessions s ON s.acp_session_id = t.acp_session_id"
        " JOIN acp_log e ON e.log_key = s.log_key AND e.seq >= t.first_seq"
        f" WHERE t.turn_id = ? AND (e.kind IN {kinds(ToolStarted, ToolEnded)}"
        f" OR (e.kind = {kind(UserMessage)} AND e.seq > t.last_seq)"
        f" OR ((e.turn IS NULL OR e.turn IN ({', '.join('?' * len(ids))})) AND e.kind = {kind(Text)}))"
        " ORDER BY e.seq",
        (turn_id, *ids),
    )
    return led_to(
        turns,
        [(None if at is None else ids.get(at, OTHERS), decode(payload)) for at, payload in logged],
        tools,
    )


def _words(turn_id: str, rows: Rows) -> str:
    said: list[str] = []
    message: str | None = None
    for event in _events(turn_id, rows):
        if isinstance(event, Text) and event.text and not event.note:
            if message not in (None, event.message_id):
                said.append("\n\n")
            message = event.message_id
            said.append(event.text)
    return "".join(said)


def _events(turn_id: str, rows: Rows) -> Iterator[Event | None]:
    """Texts of the turn, calls that were begun in it, and the note, which is in no turn, that explains it."""
    for (payload,) in rows(
        "SELECT e.payload FROM acp_turns t JOIN acp_sessions s ON s.acp_session_id = t.acp_session_id"  # noqa: S608  constants
        " JOIN acp_log e ON e.log_key = s.log_key AND e.seq >= t.first_seq"
        f" WHERE t.turn_id = ? AND e.kind IN {kinds(Text, ToolStarted)} AND (e.turn = t.position"
        f" OR (e.turn IS NULL AND INSTR(e.payload, t.turn_id || '{WHY}\"') > 0)) ORDER BY e.seq",
        (turn_id,),
    ):
        yield decode(payload)
