"""`acp_permissions`: permission requests, pending and settled.

`request` is the whole request (JSON), enough to ask it again; `content` is a form's filled-in
content (JSON). While `outcome` is NULL the request is pending, and `policy` is `attended` (a client
is there), the away policy that acts at `deadline_clock` (ms, own clock; `deadline` and `created_at`
are for people), or `parked` (its worker was given up). `position` orders all requests. `turn_id` is
the turn that asks; of a decided parked request the turn that goes on with the decision, and NULL
once the decision is used up.
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

MATCHES: Final = 20  # requests that a prefix returns, at most
_COLUMNS: Final = (
    "p.acp_session_id, p.request, p.turn_id, p.policy, p.deadline, p.created_at, p.asked_clock, p.deadline_clock,"
    " p.outcome, p.option_id, p.answered_by, p.content"
)
_decoder: Final = msgspec.json.Decoder(PermissionRequest)

log: Final = structlog.get_logger()


def insert(session_id: str, request: PermissionRequest, clock: int) -> Statement:
    """Insert a worker's request; `clock`: the own clock's reading (ms)."""
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


def insert_workspace(
    session_id: str, request: PermissionRequest, clock: int
) -> tuple[Statement, Statement]:
    """Insert a trust request, which comes from no worker."""
    about = ", ".join(one.path for one in request.workspaces)
    told = Statement(
        "UPDATE acp_permissions SET workspace = ? WHERE permission_id = ?", (about, request.ask_id)
    )
    return insert(session_id, request, clock), told


def set_clock(ask_id: str, policy: RequestPolicy, deadline: Deadline | None) -> Statement:
    """Set a pending request's policy and deadline; a parked one has none."""
    return Statement(
        "UPDATE acp_permissions SET policy = ?, deadline = ?, deadline_clock = ?"
        " WHERE permission_id = ? AND outcome IS NULL AND policy <> ?",
        (
            policy,
            deadline and deadline.shown,
            deadline and deadline.clock,
            ask_id,
            RequestPolicy.PARKED,
        ),
    )


def park(ask_id: str) -> Statement:
    """Park a pending request; fails with Conflict if it is settled."""
    return Statement(
        "UPDATE acp_permissions SET policy = ?, deadline = NULL, deadline_clock = NULL"
        " WHERE permission_id = ? AND outcome IS NULL",
        (RequestPolicy.PARKED, ask_id),
        rows=1,
    )


def settle(settled: Settlement) -> Statement:
    """Settle a pending request; a settled one stays as it is."""
    content = None if settled.content is None else msgspec.json.encode(settled.content).decode()
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, option_id = ?, answered_by = ?, content = ?, answered_at = ?"
        " WHERE permission_id = ? AND outcome IS NULL",
        (
            settled.outcome,
            settled.option_id,
            settled.answered_by,
            content,
            now_ms(),
            settled.permission_id,
        ),
    )


def settle_parked(settled: Settlement, turn_id: str) -> Statement:
    """Settle a parked request, with the turn that goes on with it; fails with Conflict if it is
    settled.
    """
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


def interrupt_parked(session_id: str) -> Statement:
    """Settle the parked requests of a session's rewound turns: what they were about is taken back."""
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, answered_at = ?"
        " WHERE acp_session_id = ? AND outcome IS NULL AND policy = ? AND NOT EXISTS (SELECT 1"
        " FROM acp_turns t WHERE t.turn_id = acp_permissions.turn_id AND t.rewound_at IS NULL)",
        (RequestOutcome.INTERRUPTED, now_ms(), session_id, RequestPolicy.PARKED),
    )


def use_up(ask_id: str) -> Statement:
    """The decision of a parked request was applied to its call; it is not applied again."""
    return Statement(
        "UPDATE acp_permissions SET turn_id = NULL WHERE permission_id = ? AND policy = ?",
        (ask_id, RequestPolicy.PARKED),
    )


def withdraw(ask_id: str) -> Statement:
    """The worker has withdrawn its request; a parked one stays pending."""
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, answered_at = ?"
        " WHERE permission_id = ? AND outcome IS NULL AND policy <> ?",
        (RequestOutcome.WITHDRAWN, now_ms(), ask_id, RequestPolicy.PARKED),
    )


def interrupt_all(adopted: Collection[str] = ()) -> Statement:
    """Settle requests whose worker is gone: all but those of `adopted` sessions, parked ones, and
    trust requests whose prompt is still queued.
    """
    spared = (
        f" AND (workspace IS NOT NULL OR acp_session_id NOT IN {places(adopted)})"
        if adopted
        else ""
    )
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, answered_at = ?"  # noqa: S608  placeholders only
        f" WHERE outcome IS NULL AND policy <> ?{spared} AND NOT (workspace IS NOT NULL AND EXISTS"
        f" (SELECT 1 FROM acp_turns t WHERE t.turn_id = acp_permissions.turn_id AND t.state = {QUEUED}))",
        (RequestOutcome.INTERRUPTED, now_ms(), RequestPolicy.PARKED, *adopted),
    )


async def waiting(database: Database, session_id: str | None = None) -> list[StoredRequest]:
    """Pending requests, the oldest first; then decided parked ones whose turn has not ended."""
    mine, of_session = (
        ("", ()) if session_id is None else (" AND p.acp_session_id = ?", (session_id,))
    )
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p JOIN acp_sessions s ON s.acp_session_id = p.acp_session_id"  # noqa: S608
        f" WHERE p.outcome IS NULL AND s.deleted_at IS NULL{mine} ORDER BY +p.position",  # sorted: few are pending
        of_session,
    )
    answered = await database.read(
        f"SELECT {_COLUMNS} FROM acp_turns t JOIN acp_permissions p ON p.turn_id = t.turn_id"  # noqa: S608
        f" WHERE t.state IN {UNFINISHED} AND p.policy = ? AND p.outcome = ?{mine}",
        (RequestPolicy.PARKED, RequestOutcome.SELECTED, *of_session),
    )
    return _requests([*rows, *answered])


async def parked_before(database: Database, session_id: str, turn_id: str) -> set[str]:
    """Ids of pending parked requests of turns before this one, which Claude remembers."""
    rows = await database.read(
        "SELECT p.permission_id FROM acp_permissions p JOIN acp_turns t ON t.turn_id = p.turn_id"
        " WHERE p.acp_session_id = ? AND p.outcome IS NULL AND p.policy = ? AND t.rewound_at IS NULL"
        " AND COALESCE(t.position, 0) < (SELECT b.position FROM acp_turns b WHERE b.turn_id = ?)",
        (session_id, RequestPolicy.PARKED, turn_id),
    )
    return {ask_id for (ask_id,) in rows}


async def matching(database: Database, prefix: str) -> list[StoredRequest]:
    """Requests whose id starts with `prefix`: pending ones first, then the newest."""
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p"  # noqa: S608
        " WHERE p.permission_id >= ? AND p.permission_id < ?"
        " ORDER BY p.outcome IS NOT NULL, COALESCE(p.position, 0) DESC LIMIT ?",
        (prefix, prefix + "\U0010ffff", MATCHES),  # a range of the index
    )
    return _requests(rows)


async def about_trust(database: Database, turn_id: str) -> list[StoredRequest]:
    """Trust requests of a turn, settled or not, the newest first."""
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p"  # noqa: S608
        " WHERE p.turn_id = ? AND p.workspace IS NOT NULL ORDER BY p.position DESC",
        (turn_id,),
    )
    return _requests(rows)


async def about_calls(
    database: Database, session_id: str, calls: Collection[str]
) -> list[StoredRequest]:
    """Requests of workers about these tool calls, settled or not, the oldest first."""
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p WHERE p.acp_session_id = ? AND p.workspace IS NULL"  # noqa: S608
        f" AND p.tool_call_id IN {places(calls)} ORDER BY p.position",
        (session_id, *calls),
    )
    return _requests(rows)


async def is_open(database: Database, ask_id: str) -> bool:
    """Whether the request is pending."""
    rows = await database.read(
        "SELECT outcome IS NULL FROM acp_permissions WHERE permission_id = ?", (ask_id,)
    )
    return bool(rows and rows[0][0])


async def settled(database: Database, ask_ids: Collection[str]) -> list[StoredRequest]:
    """Return those of these requests that are settled and were not parked."""
    if not ask_ids:
        return []
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_permissions p"  # noqa: S608
        f" WHERE p.outcome IS NOT NULL AND p.policy <> ? AND p.permission_id IN {places(ask_ids)}",
        (RequestPolicy.PARKED, *ask_ids),
    )
    return _requests(rows)


def _requests(rows: Sequence[tuple[Any, ...]]) -> list[StoredRequest]:
    """Decode rows; an unreadable one is skipped, so that it does not keep the server
    from starting.
    """
    found: list[StoredRequest] = []
    for session_id, request, turn_id, policy, *rest, content in rows:
        try:
            rest.append(None if content is None else msgspec.json.decode(content))
            found.append(
                StoredRequest(
                    session_id, _decoder.decode(request), turn_id, RequestPolicy(policy), *rest
                )
            )
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning(
                "A permission request cannot be read",
                action="question_unreadable",
                session=session_id,
                error=str(error),
            )
    return found
