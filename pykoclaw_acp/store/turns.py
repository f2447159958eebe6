"""`acp_turns`: the journal of prompts. A turn moves forward through its states, never back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from pykoclaw_acp.model.events import TitleChanged, UserMessage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn, TurnOrigin, TurnState
from pykoclaw_acp.store import sql
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.readers import Rows, unless_damaged
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import BACKGROUND, CLIENT, DISPATCHED, QUEUED, RUNNING, UNFINISHED

# The next position; turns from before there were positions count as the first ones.
_POSITION: Final = (
    "COALESCE((SELECT MAX(position) FROM acp_turns WHERE acp_session_id = ?),"
    " (SELECT COUNT(*) FROM acp_turns WHERE acp_session_id = ?)) + 1"
)
# Turns that ended before there were positions have none, and come before all others.
NEWEST_FIRST: Final = "COALESCE(position, 0) DESC, created_at DESC, turn_id DESC"
_NOT_CLAUDE: Final = sql.kinds(UserMessage, TitleChanged)  # a turn that did nothing may have these
# Whether the log has nothing of a turn, and whether it has something that Claude did.
_LOGGED: Final = (
    "SELECT t.first_seq IS NULL AND t.taken_by IS NULL"  # noqa: S608  constant
    " AND NOT EXISTS (SELECT 1 FROM acp_events e WHERE e.turn_id = t.turn_id),"
    " EXISTS (SELECT 1 FROM acp_events e"
    f" WHERE e.turn_id = t.turn_id AND e.kind NOT IN {_NOT_CLAUDE})"
    " OR EXISTS (SELECT 1 FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key"
    " WHERE s.acp_session_id = t.acp_session_id AND e.seq >= t.first_seq AND e.turn = t.position"
    f" AND e.kind NOT IN {_NOT_CLAUDE})"
    " FROM acp_turns t WHERE t.turn_id = ?"
)
_UNSEEN: Final = (False, True)  # where that cannot be looked at it may have
KeyColumn = Literal["request_key", "idempotency_key"]


@dataclass(frozen=True, slots=True)
class UnfinishedTurn:
    """A turn that an earlier server left. `background`: Claude started it by itself. `epoch`: its
    worker's.
    """

    turn: Turn
    epoch: int | None
    background: bool


def insert(turn: Turn, prompt: str) -> Statement:
    """Insert a queued turn at the next position; `prompt` is its content as JSON. Fails with Conflict
    if it is a scheduled task's run that has ended, or whose task was deleted.
    """
    return Statement(
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, request_key, idempotency_key, fingerprint,"  # noqa: S608
        " client, instance, state, created_at, sent_clock, unattended, detached, attempts, task_id, position)"
        f" SELECT ?, ?, {CLIENT}, ?, ?, ?, ?, ?, ?, {QUEUED}, ?, ?, ?, ?, ?, ?, {_POSITION} WHERE NOT EXISTS"
        " (SELECT 1 FROM acp_task_runs r WHERE r.turn_id = ? AND r.ended_at IS NOT NULL)"
        " AND (? IS NULL OR EXISTS (SELECT 1 FROM scheduled_tasks k WHERE k.id = ?))",
        (
            turn.turn_id,
            turn.session_id,
            prompt,
            turn.keys.request,
            turn.keys.idempotency,
            turn.keys.fingerprint,
            *(turn.client, turn.client_process),
            turn.created_at,
            turn.sent,
            *(int(turn.unattended), int(turn.detached)),
            int(turn.begun),
            turn.task_id,
            *(turn.session_id, turn.session_id),
            turn.turn_id,
            *(turn.task_id, turn.task_id),
        ),
        rows=1,
    )


def count_attempt(turn_id: str, change: int) -> Statement:
    """A daemon starts (1) or stops (-1) preparing a queued turn; the count survives its death."""
    return Statement(
        f"UPDATE acp_turns SET attempts = attempts + ? WHERE turn_id = ? AND state = {QUEUED}",  # noqa: S608  constant
        (change, turn_id),
    )


async def in_transcript(database: Database, session_id: str, turn_id: str) -> bool:
    """Whether a transcript of the session that was looked at has the turn's prompt."""
    return bool(
        await database.read(
            "SELECT 1 FROM acp_transcript_turns WHERE acp_session_id = ? AND prompt_uuid = ?",
            (session_id, turn_id),
        )
    )


def answered(turn_id: str) -> Statement:
    """A client has received the response."""
    return Statement("UPDATE acp_turns SET answered_at = ? WHERE turn_id = ?", (now_ms(), turn_id))


async def ended(
    database: Database, session_id: str, column: KeyColumn, value: str
) -> list[tuple[Turn, Outcome]]:
    """Ended turns of clients, by one of their unique keys; without their content."""
    return await _ended(
        database,
        f"WHERE acp_session_id = ? AND {column} = ? AND origin = {CLIENT} AND state NOT IN {UNFINISHED}",
        (session_id, value),
    )


async def outcome(database: Database, turn_id: str) -> Outcome | None:
    """Outcome of a turn; None if it has not ended, or does not exist."""
    found = await _ended(database, f"WHERE turn_id = ? AND state NOT IN {UNFINISHED}", (turn_id,))
    return found[0][1] if found else None


async def is_rewound(database: Database, turn_id: str) -> bool:
    """Whether Claude was made to forget the turn."""
    sql = "SELECT 1 FROM acp_turns WHERE turn_id = ? AND rewound_at IS NOT NULL"
    return bool(await database.read(sql, (turn_id,)))


async def newest(database: Database, session_id: str, since: int) -> tuple[Turn, Outcome] | None:
    """The session's last prompt of a client, if it ended at or after `since` (ms, own clock)."""
    found = await _ended(
        database,
        f"WHERE turn_id = (SELECT turn_id FROM acp_turns WHERE acp_session_id = ? AND origin = {CLIENT}"  # noqa: S608  constant
        f" AND task_id IS NULL ORDER BY {NEWEST_FIRST} LIMIT 1) AND state NOT IN {UNFINISHED} AND ended_clock >= ?",
        (session_id, since),
    )
    return found[0] if found else None


async def _ended(
    database: Database, where: str, values: tuple[Any, ...]
) -> list[tuple[Turn, Outcome]]:
    rows = await database.read(
        "SELECT turn_id, acp_session_id, request_key, idempotency_key, fingerprint, created_at, sent_clock,"  # noqa: S608
        f" answered_at, task_id, state, taken_by, stop_reason, error, usage FROM acp_turns {where}",
        values,
    )
    found: list[tuple[Turn, Outcome]] = []
    for (
        turn_id,
        session_id,
        request,
        idempotency,
        fingerprint,
        created_at,
        sent,
        answered_at,
        task_id,
        state,
        taken_by,
        *end,
    ) in rows:
        keys = PromptKeys(request, idempotency, fingerprint)
        turn = Turn(
            turn_id,
            session_id,
            [],
            keys,
            created_at,
            sent=sent or 0,
            task_id=task_id,
            taken_by=taken_by,
            state=TurnState(state),
            answered=answered_at is not None,
        )
        stop_reason, error, usage = end
        failure = failure_of(error)
        used = None if usage is None else json.loads(usage)
        found.append(
            (turn, Outcome(turn.state, stop_reason=stop_reason, failure=failure, usage=used))
        )
    return found


async def has_unfinished(database: Database, session_id: str, keys: PromptKeys) -> bool:
    """Whether an unfinished turn has this request key or idempotency key."""
    rows = await database.read(
        f"SELECT 1 FROM acp_turns WHERE acp_session_id = ? AND state IN {UNFINISHED}"  # noqa: S608  constant
        " AND (request_key = ? OR idempotency_key = ?) LIMIT 1",
        (session_id, keys.request, keys.idempotency),
    )
    return bool(rows)


async def exists(database: Database, request_key: str) -> bool:
    """Whether there is a turn of this request."""
    return bool(
        await database.read("SELECT 1 FROM acp_turns WHERE request_key = ?", (request_key,))
    )


async def of_front(database: Database, session_id: str, front: str) -> dict[str, str]:
    """Ids of the turns that came through a front, with their request keys."""
    rows = await database.read(
        "SELECT turn_id, request_key FROM acp_turns"
        " WHERE acp_session_id = ? AND request_key > ? AND request_key < ?",
        (session_id, f"{front}:", f"{front};"),
    )
    return dict(rows)


async def place(database: Database, turn_id: str) -> int | None:
    """The seq before a turn's first event; None while it has none."""
    rows = await database.read("SELECT first_seq - 1 FROM acp_turns WHERE turn_id = ?", (turn_id,))
    return int(rows[0][0]) if rows and rows[0][0] is not None else None


def dispatch(turn_id: str, epoch: int) -> Statement:
    """`queued` to `dispatched`: the prompt is about to be sent, and is never sent again. Fails with
    Conflict if it is a scheduled task's run whose task was deleted.
    """
    return Statement(
        f"UPDATE acp_turns SET state = {DISPATCHED}, epoch = ?, dispatched_at = ?"  # noqa: S608  constants
        f" WHERE turn_id = ? AND state = {QUEUED} AND (task_id IS NULL"
        " OR EXISTS (SELECT 1 FROM scheduled_tasks k WHERE k.id = acp_turns.task_id))",
        (epoch, now_ms(), turn_id),
        rows=1,
    )


def ask_cancel(turn_id: str) -> Statement:
    """The worker was told to stop the turn."""
    return Statement("UPDATE acp_turns SET cancel_asked = 1 WHERE turn_id = ?", (turn_id,))


def start(turn_id: str, taken_by: str | None = None) -> Statement:
    """`dispatched` to `running`: Claude has taken it up, or the turn that runs has."""
    return Statement(
        f"UPDATE acp_turns SET state = {RUNNING}, started_at = ?, taken_by = ?"  # noqa: S608  constants
        f" WHERE turn_id = ? AND state = {DISPATCHED}",
        (now_ms(), taken_by, turn_id),
    )


def insert_background(session_id: str, turn_id: str, epoch: int, clock: int) -> Statement:
    """Insert a turn that Claude has started by itself, when background work ended; `clock`: then
    (ms, own clock).
    """
    at = now_ms()
    return Statement(
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, epoch, created_at, started_at,"  # noqa: S608
        f" sent_clock, position) VALUES (?, ?, {BACKGROUND}, '[]', {RUNNING}, ?, ?, ?, ?, {_POSITION})",
        (turn_id, session_id, epoch, at, at, clock, session_id, session_id),
    )


def end(turn_id: str, outcome: Outcome, at: int, *, once: bool = False) -> Statement:
    """End an unfinished turn `at` (ms, own clock); of an ended one nothing changes, or `once` fails
    with Conflict.
    """
    return Statement(
        "UPDATE acp_turns SET state = ?, stop_reason = ?, error = ?, usage = ?, ended_at = ?, ended_clock = ?,"  # noqa: S608  constant
        f" claude_session_id = ?, last_uuid = ? WHERE turn_id = ? AND state IN {UNFINISHED}",
        (
            outcome.state,
            outcome.stop_reason,
            _failure_json(outcome.failure),
            None if outcome.usage is None else json.dumps(outcome.usage),
            now_ms(),
            at,
            outcome.claude_session_id,
            outcome.last_uuid,
            turn_id,
        ),
        rows=1 if once else None,
    )


async def unfinished(database: Database) -> list[UnfinishedTurn]:
    """Unfinished turns, per session in the order of their positions."""
    rows = await database.read_with(_unfinished)
    found: list[UnfinishedTurn] = []
    for turn_id, session_id, prompt, request, idempotency, fingerprint, created_at, *rest in rows:
        client, client_process, sent, state, epoch, origin, *more = rest
        unattended, detached, attempts, task_id, cancel_asked, taken_by, unsaid, spoke = more
        keys = PromptKeys(request, idempotency, fingerprint)
        turn = Turn(
            turn_id,
            session_id,
            content(prompt),
            keys,
            created_at,
            client,
            client_process,
            state=TurnState(state),
            spoke=bool(spoke) or taken_by is not None,
        )
        turn.sent, turn.unattended, turn.attempts = sent or 0, bool(unattended), attempts
        turn.task_id, turn.detached, turn.recovered = task_id, bool(detached), True
        turn.taken_by, turn.unsaid = taken_by, bool(unsaid) and turn.state != TurnState.QUEUED
        if cancel_asked:
            turn.cancelled.set()
        found.append(UnfinishedTurn(turn, epoch, origin == TurnOrigin.BACKGROUND))
    return found


def _unfinished(read: Rows) -> list[tuple[Any, ...]]:
    found = read(
        "SELECT turn_id, acp_session_id, prompt, request_key, idempotency_key, fingerprint, created_at, client,"  # noqa: S608
        " instance, sent_clock, state, epoch, origin, unattended, detached, attempts, task_id, cancel_asked, taken_by"
        f" FROM acp_turns WHERE state IN {UNFINISHED} ORDER BY acp_session_id, position",
        (),
    )
    # One by one: the log of one session may be damaged
    logged = [unless_damaged(read, _LOGGED, (row[0],)) or [_UNSEEN] for row in found]
    return [row + said[0] for row, said in zip(found, logged, strict=True)]


def content(prompt: str) -> list[dict[str, Any]]:
    """Decode a prompt; an unreadable one is empty, so that it does not keep the server from
    starting.
    """
    try:
        return [
            block for block in json.loads(prompt) if isinstance(block, dict) and "type" in block
        ]
    except (ValueError, TypeError, RecursionError):
        return []


def failure_of(error: str | None) -> TurnFailure | None:
    """The failure that a turn's row keeps."""
    return None if error is None else msgspec.json.decode(error, type=TurnFailure)


def _failure_json(failure: TurnFailure | None) -> str | None:
    """The failure as its row keeps it."""
    if failure is None:
        return None
    kept = {"kind": failure.kind, "message": failure.message, "status": failure.status}
    more = {
        "retry_after": failure.retry_after,
        "resets_at": failure.resets_at,
        "begun": failure.begun or None,
    }
    return json.dumps(kept | {name: value for name, value in more.items() if value is not None})
