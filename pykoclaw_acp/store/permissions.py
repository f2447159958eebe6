"""`acp_permissions`: questions that wait for an answer, and how they were settled.

`request` is the whole question, enough to ask it again; `content` is what its form was filled in with (JSON). While a
row has no `outcome`, `policy` is `attended` (a client is there), the away policy that acts at `deadline_clock` (ms, own
clock; `deadline` and `created_at` are for people), or `parked` (no worker waits any more). `position` is its place
among all questions. `turn_id` is the turn that asks; once a parked question is answered, the
turn that goes on with the answer, and NULL as soon as the answer was used for the call that it is about.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
import structlog

from pykoclaw_acp.model.permissions import (
    Deadline,
    PermissionRequest,
    RequestOutcome,
    RequestPolicy,
    Settlement,
    StoredRequest,
)
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import QUEUED, UNFINISHED, places

MATCHES: Final = 20  # rows, at most, that a prefix gives
_COLUMNS: Final = (
    "p.acp_session_id, p.request, p.turn_id, p.policy, p.deadline, p.created_at, p.asked_clock, p.deadline_clock,"
    " p.outcome, p.option_id, p.answered_by, p.content"
)
_decoder: Final = msgspec.json.Decoder(PermissionRequest)

log: Final = structlog.get_logger()


def insert(session_id: str, request: PermissionRequest, clock: int) -> Statement:
    """A worker asks, when the own clock shows `clock`."""
    encoded = msgspec.json.encode(request).decode()
    return Statement(
        "INSERT INTO acp_permissions"
        " (permission_id, acp_session_id, turn_id, tool_call_id, request, policy, created_at, asked_clock, position)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, (SELECT COALESCE(MAX(position), 0) + 1 FROM acp_permissions))",
        (
            request.ask_id,
            session_id,
            request.turn_id,
            request.tool_call_id,
            encoded,
            RequestPolicy.ATTENDED,
            now_ms(),
            clock,
        ),
    )


def insert_workspace(session_id: str, request: PermissionRequest, clock: int) -> tuple[Statement, Statement]:
    """A question about trust is asked, which no worker asks."""
    about = ", ".join(one.path for one in request.workspaces)
    told = Statement("UPDATE acp_permissions SET workspace = ? WHERE permission_id = ?", (about, request.ask_id))
    return insert(session_id, request, clock), told


def set_clock(ask_id: str, policy: RequestPolicy, deadline: Deadline | None) -> Statement:
    """A client came or went; a parked question has no clock."""
    return Statement(
        "UPDATE acp_permissions SET policy = ?, deadline = ?, deadline_clock = ?"
        " WHERE permission_id = ? AND outcome IS NULL AND policy <> ?",
        (policy, deadline and deadline.shown, deadline and deadline.clock, ask_id, RequestPolicy.PARKED),
    )


def park(ask_id: str) -> Statement:
    """The question waits on without a worker; fails with Conflict if it was settled meanwhile."""
    return Statement(
        "UPDATE acp_permissions SET policy = ?, deadline = NULL, deadline_clock = NULL"
        " WHERE permission_id = ? AND outcome IS NULL",
        (RequestPolicy.PARKED, ask_id),
        rows=1,
    )


def settle(settled: Settlement) -> Statement:
    """The first settlement counts."""
    content = None if settled.content is None else msgspec.json.encode(settled.content).decode()
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, option_id = ?, answered_by = ?, content = ?, answered_at = ?"
        " WHERE permission_id = ? AND outcome IS NULL",
        (settled.outcome, settled.option_id, settled.answered_by, content, now_ms(), settled.permission_id),
    )


def settle_parked(settled: Settlement, turn_id: str) -> Statement:
    """A parked question is answered, and this turn goes on with it; fails with Conflict if it was before."""
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, option_id = ?, answered_by = ?, answered_at = ?, turn_id = ?"
        " WHERE permission_id = ? AND outcome IS NULL AND policy = ?",
        (
            settled.outcome,
            settled.option_id,
            settled.answered_by,
            now_ms(),
            turn_id,
            settled.permission_id,
            RequestPolicy.PARKED,
        ),
        rows=1,
    )


def use_up(ask_id: str) -> Statement:
    """The answer to a parked question was used for its call: once is once."""
    return Statement(
        "UPDATE acp_permissions SET turn_id = NULL WHERE permission_id = ? AND policy = ?",
        (ask_id, RequestPolicy.PARKED),
    )


def withdraw(ask_id: str) -> Statement:
    """The worker does not wait any more; a parked question needs none."""
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, answered_at = ?"
        " WHERE permission_id = ? AND outcome IS NULL AND policy <> ?",
        (RequestOutcome.WITHDRAWN, now_ms(), ask_id, RequestPolicy.PARKED),
    )


def interrupt_all(adopted: Collection[str] = ()) -> Statement:
    """No worker waits for an answer any more, but those of the `adopted` sessions; parked questions need none.

    Neither do those about trust, whose prompt waits.
    """
    spared = f" AND (workspace IS NOT NULL OR acp_session_id NOT IN {places(adopted)})" if adopted else ""
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, answered_at = ?"  # noqa: S608  placeholders only
        f" WHERE outcome IS NULL AND policy <> ?{spared} AND NOT (workspace IS NOT NULL AND EXISTS"
        f" (SELECT 1 FROM acp_turns t WHERE t.turn_id = acp_permissions.turn_id AND t.state = {QUEUED}))",
        (RequestOutcome.INTERRUPTED, now_ms(), RequestPolicy.PARKED, *adopted),
    )


async def waiting(database: Database, session_id: str | None = None) -> list[StoredRequest]:
    """Open questions, and answered parked ones whose turn still goes on with the answer; the oldest first."""
    mine, of_session = ("", ()) if session_id is None else (" AND p.acp_session_id = ?", (session_id,))
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p JOIN acp_sessions s ON s.acp_session_id = p.acp_session_id"  # noqa: S608
        f" WHERE p.outcome IS NULL AND s.deleted_at IS NULL{mine} ORDER BY +p.position",  # the few open ones are sorted
        of_session,
    )
    answered = await database.read(
        f"SELECT {_COLUMNS} FROM acp_turns t JOIN acp_permissions p ON p.turn_id = t.turn_id"  # noqa: S608
        f" WHERE t.state IN {UNFINISHED} AND p.policy = ? AND p.outcome = ?{mine}",
        (RequestPolicy.PARKED, RequestOutcome.SELECTED, *of_session),
    )
    return _questions([*rows, *answered])


async def matching(database: Database, prefix: str) -> list[StoredRequest]:
    """Questions whose id begins so, the open ones first."""
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p"  # noqa: S608
        " WHERE p.permission_id >= ? AND p.permission_id < ?"
        " ORDER BY p.outcome IS NOT NULL, COALESCE(p.position, 0) DESC LIMIT ?",
        (prefix, prefix + "\U0010ffff", MATCHES),  # a range of the index
    )
    return _questions(rows)


async def about_trust(database: Database, turn_id: str) -> list[StoredRequest]:
    """Questions about trust that were asked for this turn and are answered, the newest first."""
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p"  # noqa: S608
        " WHERE p.turn_id = ? AND p.workspace IS NOT NULL AND p.outcome IS NOT NULL ORDER BY p.position DESC",
        (turn_id,),
    )
    return _questions(rows)


async def is_open(database: Database, ask_id: str) -> bool:
    """Whether the question waits for an answer."""
    rows = await database.read("SELECT outcome IS NULL FROM acp_permissions WHERE permission_id = ?", (ask_id,))
    return bool(rows and rows[0][0])


async def settled(database: Database, ask_ids: Collection[str]) -> list[StoredRequest]:
    """Those of the questions that are settled, but for parked ones: their answer went to another turn."""
    if not ask_ids:
        return []
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p"  # noqa: S608
        f" WHERE p.outcome IS NOT NULL AND p.policy <> ? AND p.permission_id IN {places(ask_ids)}",
        (RequestPolicy.PARKED, *ask_ids),
    )
    return _questions(rows)


def _questions(rows: Sequence[tuple[Any, ...]]) -> list[StoredRequest]:
    """A row that cannot be read must not keep the server from starting; nobody can be asked it again."""
    found: list[StoredRequest] = []
    for session_id, request, turn_id, policy, *rest, content in rows:
        try:
            rest.append(None if content is None else msgspec.json.decode(content))
            found.append(StoredRequest(session_id, _decoder.decode(request), turn_id, RequestPolicy(policy), *rest))
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning("A question cannot be read", action="question_unreadable", session=session_id, error=str(error))
    return found
