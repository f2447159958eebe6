"""`acp_turns`: the journal of prompts. A turn moves forward through its states, never back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pykoclaw_acp.sessions import endings
from pykoclaw_acp.sessions.model import Outcome, Turn
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms

_UNFINISHED: Final = "('queued', 'dispatched', 'running')"


@dataclass(frozen=True, slots=True)
class UnfinishedTurn:
    """A turn that a dead server left; `spoke`: something of its answer is in the log."""

    turn_id: str
    session_id: str
    state: str
    content: list[dict[str, Any]]
    spoke: bool


def insert(turn: Turn) -> Statement:
    """A prompt was accepted."""
    return Statement(
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at)"
        " VALUES (?, ?, 'client', ?, 'queued', ?)",
        (turn.turn_id, turn.session_id, json.dumps(turn.content), now_ms()),
    )


def dispatch(turn_id: str, epoch: int) -> Statement:
    """The prompt is about to leave for the worker: from now on it is never sent again."""
    return Statement(
        "UPDATE acp_turns SET state = 'dispatched', epoch = ?, dispatched_at = ?"
        " WHERE turn_id = ? AND state = 'queued'",
        (epoch, now_ms(), turn_id),
        rows=1,
    )


def start(turn_id: str) -> Statement:
    """Claude took it up."""
    return Statement(
        "UPDATE acp_turns SET state = 'running', started_at = ? WHERE turn_id = ? AND state = 'dispatched'",
        (now_ms(), turn_id),
    )


def insert_background(session_id: str, turn_id: str, epoch: int) -> Statement:
    """Claude started a turn by itself, as background work ended."""
    at = now_ms()
    return Statement(
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, epoch, created_at, started_at)"
        " VALUES (?, ?, 'background', '[]', 'running', ?, ?, ?)",
        (turn_id, session_id, epoch, at, at),
    )


def end(turn_id: str, outcome: Outcome, *, once: bool = False) -> Statement:
    """The turn's one end; a second one changes nothing, or with `once` fails with Conflict."""
    return Statement(
        "UPDATE acp_turns SET state = ?, stop_reason = ?, error = ?, usage = ?, ended_at = ?"  # noqa: S608  constant
        f" WHERE turn_id = ? AND state IN {_UNFINISHED}",
        (
            outcome.state,
            outcome.stop_reason,
            endings.fault_json(outcome.fault),
            None if outcome.usage is None else json.dumps(outcome.usage),
            now_ms(),
            turn_id,
        ),
        rows=1 if once else None,
    )


async def unfinished(database: Database) -> list[UnfinishedTurn]:
    """Turns without an end, in the order of their prompts."""
    rows = await database.read(
        "SELECT t.turn_id, t.acp_session_id, t.state, t.prompt, EXISTS (SELECT 1 FROM acp_events e"  # noqa: S608
        " WHERE e.turn_id = t.turn_id AND e.kind <> 'user_message')"
        f" FROM acp_turns t WHERE t.state IN {_UNFINISHED} ORDER BY t.created_at, t.turn_id"
    )
    return [
        UnfinishedTurn(turn_id, session_id, state, _content(prompt), bool(spoke))
        for turn_id, session_id, state, prompt, spoke in rows
    ]


def _content(prompt: str) -> list[dict[str, Any]]:
    """A row that cannot be read must not keep the server from starting: its turn ends without its words."""
    try:
        return [block for block in json.loads(prompt) if isinstance(block, dict) and "type" in block]
    except (ValueError, TypeError):
        return []
