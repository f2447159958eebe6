"""`acp_notices`, `acp_notifications` and `acp_notify`: what people are told of while nobody is
there; and the rows of `delivery_queue` that tell a conversation of another channel.

A delivery's id follows from the notice and the conversation, so that it is written once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from pykoclaw_acp.model.notices import (
    DeliveryTarget,
    DueNotification,
    EndedTurn,
    Notice,
    NoticeKind,
    NoticeSession,
    NotificationOutcome,
    WaitingRequest,
)
from pykoclaw_acp.model.permissions import PermissionRequest, RequestPolicy
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.pieces import Pieces
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import DONE, PENDING, UNFINISHED, places
from pykoclaw_acp.store.turns import failure_of

TASK_ID: Final = "acp-notify"
"""`task_id` of deliveries; like that of pykoclaw's `send`, no task has it."""
AT_A_TIME: Final = 20  # notifications that are read together
LATELY: Final = 48 * 3600 * 1000  # ms; of notices that were given up and are still reported
KEPT: Final = 30 * 24 * 3600 * 1000  # ms that a settled notice is kept
_decoder: Final = msgspec.json.Decoder(PermissionRequest)

log: Final = structlog.get_logger()

_TOLD: Final = "EXISTS (SELECT 1 FROM acp_notices n WHERE n.notice_id = '{}-' || {})"
_TURN_TOLD: Final = _TOLD.format("turn", "t.turn_id")
_QUESTION_TOLD: Final = _TOLD.format("question", "p.permission_id")
_ASIDE: Final = "FROM acp_task_runs r WHERE r.acp_session_id = s.acp_session_id AND r.aside = 1"
# The conversation of the task that the session is a run of.
_RUN_OF: Final = (
    "(SELECT CASE WHEN json_valid(r.task) THEN json_extract(r.task, '$.conversation') END"
    f" {_ASIDE} LIMIT 1)"
)
_PLACE: Final = (
    f"s.acp_session_id, COALESCE(CASE s.auxiliary WHEN 1 THEN {_RUN_OF} END, s.conversation_name),"  # noqa: S608
    " COALESCE(s.title, (SELECT o.title FROM acp_sessions o"
    f" WHERE o.conversation_name = {_RUN_OF} AND o.alias_of IS NULL AND o.deleted_at IS NULL)), s.cwd"
)
_PERSONS: Final = f"s.deleted_at IS NULL AND (s.auxiliary = 0 OR EXISTS (SELECT 1 {_ASIDE}))"
_OF_TASK: Final = "t.task_id IS NOT NULL OR s.auxiliary = 1"
# Whether some client was shown the turn's end, under any id of the conversation.
_SHOWN: Final = (
    "EXISTS (SELECT 1 FROM acp_cursors c JOIN acp_sessions o ON o.acp_session_id = c.acp_session_id"
    " WHERE (o.acp_session_id = s.acp_session_id OR o.alias_of = s.acp_session_id) AND c.seq >= t.last_seq)"
)
# The result of a scheduled run is delivered anyhow; of one that fails nothing is.
_WATCHED: Final = f"t.answered_at IS NOT NULL OR (t.state = {DONE} AND ({_OF_TASK})) OR {_SHOWN}"
_MISSED_TURNS: Final = (
    "SELECT t.turn_id FROM acp_turns t JOIN acp_sessions s ON s.acp_session_id = t.acp_session_id"  # noqa: S608  constants
    f" WHERE t.ended_clock >= ? AND t.state NOT IN {UNFINISHED} AND t.state <> '{TurnState.CANCELLED}'"
    f" AND {_PERSONS} AND NOT {_TURN_TOLD} ORDER BY t.ended_clock"
)
_MISSED_QUESTIONS: Final = (
    "SELECT p.permission_id FROM acp_permissions p JOIN acp_sessions s ON s.acp_session_id = p.acp_session_id"  # noqa: S608
    f" WHERE p.outcome IS NULL AND p.policy <> '{RequestPolicy.ATTENDED}' AND {_PERSONS}"
    f" AND NOT {_QUESTION_TOLD} ORDER BY +p.position"
)
_TURN: Final = (
    f"SELECT {_PLACE}, t.state, t.stop_reason, t.error, t.ended_at, {_WATCHED}, {_OF_TASK}"  # noqa: S608
    " FROM acp_turns t JOIN acp_sessions s ON s.acp_session_id = t.acp_session_id"
    f" WHERE t.turn_id = ? AND t.state NOT IN {UNFINISHED} AND {_PERSONS} AND NOT {_TURN_TOLD}"
)
_QUESTION: Final = (
    f"SELECT {_PLACE}, p.request, p.policy, p.created_at, {_OF_TASK}"  # noqa: S608
    " FROM acp_permissions p JOIN acp_sessions s ON s.acp_session_id = p.acp_session_id"
    " LEFT JOIN acp_turns t ON t.turn_id = p.turn_id"
    f" WHERE p.permission_id = ? AND p.outcome IS NULL AND {_PERSONS} AND NOT {_QUESTION_TOLD}"
)
_DUE: Final = (
    "SELECT m.notice_id, m.target, n.kind, n.body, m.attempts, n.created_clock"  # noqa: S608  constant
    " FROM acp_notifications m JOIN acp_notices n ON n.notice_id = m.notice_id"
    " WHERE m.outcome IS NULL AND m.next_clock <= ? AND m.target = ?"
    f" ORDER BY m.next_clock LIMIT {AT_A_TIME}"
)
# A pending request without a notice would be told of again.
_OLD: Final = (
    "SELECT notice_id FROM acp_notices WHERE created_clock < ? AND notice_id NOT IN"
    " (SELECT notice_id FROM acp_notifications WHERE outcome IS NULL) AND notice_id NOT IN"
    " (SELECT 'question-' || permission_id FROM acp_permissions WHERE outcome IS NULL)"
)
_DELETED: Final = "SELECT 1 FROM acp_sessions s WHERE s.acp_session_id = {} AND s.deleted_at > 0"
# CROSS JOIN fixes the order: sessions first, then their notices by key.
_OF_DELETED: Final = (
    "SELECT n.notice_id FROM acp_sessions s CROSS JOIN acp_notices n"
    " ON n.acp_session_id = s.acp_session_id WHERE s.deleted_at > 0"
)
_OF_SESSION: Final = "SELECT notice_id FROM acp_notices WHERE acp_session_id = ?"
_WANTED: Final = (
    "SELECT 1 FROM acp_notices n WHERE n.notice_id = ?"  # noqa: S608
    f" AND NOT EXISTS ({_DELETED.format('n.acp_session_id')})"
)


async def since(database: Database) -> int | None:
    """From when (ms, own clock) what ended is told; None while notices are off."""
    rows = await database.read("SELECT since_clock FROM acp_notify")
    return None if not rows else int(rows[0][0])


def switch_on(clock: int) -> Statement:
    """What ends from now on is told."""
    return Statement(
        "INSERT INTO acp_notify (id, since_clock) VALUES (1, ?) ON CONFLICT (id) DO NOTHING",
        (clock,),
    )


async def is_off(database: Database) -> bool:
    """Whether nothing is told, and nothing waits for a target."""
    return not await database.read(
        "SELECT 1 FROM acp_notify UNION ALL SELECT 1 FROM acp_notifications WHERE outcome IS NULL LIMIT 1"
    )


def switch_off() -> tuple[Statement, Statement]:
    """Nothing is told: not what waits for a target, nor what ends meanwhile."""
    return remove_others([]), Statement("DELETE FROM acp_notify")


def settle_until(clock: int) -> Statement:
    """What ended until then was decided."""
    return Statement("UPDATE acp_notify SET since_clock = ? WHERE since_clock < ?", (clock, clock))


async def forget_old(database: Database, before: int) -> None:
    """Delete notices from `before` (ms, own clock) that nobody has to accept or to answer any more.
    Waits until the database can be written.
    """
    await _forget(database, _OLD, before)


async def forget_deleted(database: Database) -> None:
    """Delete the notices of deleted sessions. Waits until the database can be written."""
    await _forget(database, _OF_DELETED)


async def forget_session(database: Database, session_id: str) -> None:
    """Delete the notices of a session. Waits until the database can be written."""
    await _forget(database, _OF_SESSION, session_id)


async def _forget(database: Database, which: str, *values: object) -> None:
    pieces = Pieces()
    while await database.read(f"{which} LIMIT 1", values):
        some = f"notice_id IN ({which} ORDER BY 1 LIMIT ?)"
        piece = tuple(
            Statement(f"DELETE FROM {table} WHERE {some}", (*values, pieces.rows))  # noqa: S608  constants
            for table in ("acp_notifications", "acp_notices")
        )
        await pieces.commit(database, Unit(piece), patient=True)


async def is_wanted(database: Database, notice_id: str) -> bool:
    """Whether there is the notice, and its session was not deleted."""
    return bool(await database.read(_WANTED, (notice_id,)))


async def missed_turns(database: Database, since: int) -> list[str]:
    """Turns that ended since then (ms, own clock) without a notice."""
    return [turn_id for (turn_id,) in await database.read(_MISSED_TURNS, (since,))]


async def missed_requests(database: Database) -> list[str]:
    """Pending permission requests without a notice that nobody is there to decide."""
    return [ask_id for (ask_id,) in await database.read(_MISSED_QUESTIONS)]


async def ended_turn(database: Database, turn_id: str) -> EndedTurn | None:
    """An ended turn of a person's session, or of a task's; None if it has a notice already, or cannot be read."""
    rows = await database.read(_TURN, (turn_id,))
    if not rows:
        return None
    *place, state, stop_reason, error, ended_at, watched, of_task = rows[0]
    try:
        outcome = Outcome(TurnState(state), stop_reason=stop_reason, failure=failure_of(error))
    except (msgspec.MsgspecError, ValueError) as unread:
        _skip(f"turn-{turn_id}", unread)
        return None
    at = ended_at or now_ms()
    return EndedTurn(
        turn_id, NoticeSession(*place), outcome, at, bool(watched), of_task=bool(of_task)
    )


async def waiting_request(database: Database, ask_id: str) -> WaitingRequest | None:
    """A pending request of a person's session, or of a task's; None if it has a notice already, or cannot be read."""
    rows = await database.read(_QUESTION, (ask_id,))
    if not rows:
        return None
    *place, stored, policy, asked_at, of_task = rows[0]
    try:
        request, decided_by = _decoder.decode(stored), RequestPolicy(policy)
    except (msgspec.MsgspecError, ValueError) as unread:
        _skip(f"question-{ask_id}", unread)
        return None
    return WaitingRequest(
        NoticeSession(*place), request, decided_by, asked_at, of_task=bool(of_task)
    )


def _skip(notice_id: str, error: Exception) -> None:
    log.warning(
        "A notification is not sent: the row of its turn or request cannot be read",
        action="notice_unreadable",
        notice=notice_id,
        error=str(error),
    )


def insert(notice: Notice, body: str, clock: int) -> Statement:
    """A notice of this moment (ms, own clock); fails with Conflict if it exists, or its session was deleted."""
    session = notice.place.session_id
    return Statement(
        "INSERT INTO acp_notices (notice_id, acp_session_id, kind, body, created_at, created_clock)"
        " SELECT ?, ?, ?, ?, ?, ?"
        f" WHERE NOT EXISTS ({_DELETED.format('?')}) ON CONFLICT (notice_id) DO NOTHING",
        (notice.notice_id, session, notice.kind, body, now_ms(), clock, session),
        rows=1,
    )


def ask(notice: Notice, key: str, clock: int) -> Statement:
    """A target is to accept the notice, from now on (ms, own clock)."""
    return Statement(
        "INSERT INTO acp_notifications (notice_id, target, next_clock) VALUES (?, ?, ?)",
        (notice.notice_id, key, clock),
    )


def deliver(notice: Notice, target: DeliveryTarget) -> Statement:
    """A row of pykoclaw's `delivery_queue`; every column that its model wants has a text."""
    made = hashlib.sha256(f"{notice.notice_id} {target.conversation}".encode()).hexdigest()[:12]
    return Statement(
        "INSERT INTO delivery_queue (id, task_id, task_run_log_id, conversation, channel_prefix, message, status,"  # noqa: S608  constant
        f" created_at) VALUES (?, ?, NULL, ?, ?, ?, {PENDING}, ?) ON CONFLICT (id) DO NOTHING",
        (
            made,
            TASK_ID,
            target.conversation,
            target.prefix,
            notice.text,
            now_text(),
        ),
    )


def remove_others(keys: Sequence[str]) -> Statement:
    """Targets that are not among these will not be asked again."""
    return Statement(
        f"UPDATE acp_notifications SET outcome = ? WHERE outcome IS NULL AND target NOT IN {places(keys)}",  # noqa: S608
        (NotificationOutcome.REMOVED, *keys),
    )


async def due(database: Database, key: str, until: int) -> list[DueNotification]:
    """Notifications that a target is to be told until then (ms, own clock); some of them."""
    return [
        DueNotification(
            notice, target, NoticeKind(kind), body, attempts, max(until - made, 0) / 1000
        )
        for notice, target, kind, body, attempts, made in await database.read(_DUE, (until, key))
    ]


async def next_due(database: Database, key: str) -> int | None:
    """When the target is to be told the next notification (ms, own clock)."""
    rows: list[tuple[Any, ...]] = await database.read(
        "SELECT MIN(next_clock) FROM acp_notifications WHERE outcome IS NULL AND target = ?", (key,)
    )
    return None if rows[0][0] is None else int(rows[0][0])


def note_outcome(
    one: DueNotification, outcome: NotificationOutcome, reason: str | None
) -> Statement:
    """The target accepted the notice, or will not be asked again."""
    return Statement(
        "UPDATE acp_notifications SET outcome = ?, reason = ?, attempts = attempts + 1"
        " WHERE notice_id = ? AND target = ? AND outcome IS NULL",
        (outcome, reason, one.notice_id, one.target),
    )


def note_failure(one: DueNotification, reason: str, again: int) -> Statement:
    """The target did not accept the notice; it is tried again then (ms, own clock)."""
    return Statement(
        "UPDATE acp_notifications SET attempts = attempts + 1, next_clock = ?, reason = ?"
        " WHERE notice_id = ? AND target = ?",
        (again, reason, one.notice_id, one.target),
    )


async def unaccepted(database: Database) -> Sequence[tuple[str, int, str]]:
    """Targets that have lately not accepted what they were told: name, notices, and a reason."""
    rows = await database.read(
        "SELECT m.target, COUNT(*), MAX(m.reason) FROM acp_notifications m"
        " JOIN acp_notices n ON n.notice_id = m.notice_id WHERE m.reason IS NOT NULL AND (m.outcome IS NULL"
        " OR (m.outcome = ? AND n.created_clock > ?)) GROUP BY m.target",
        (NotificationOutcome.GIVEN_UP, database.clock.now() - LATELY),
    )
    return [(target, count, reason) for target, count, reason in rows]
