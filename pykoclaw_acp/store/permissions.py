"""`acp_permissions`: questions that wait for an answer, and how they were settled."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.sessions.ports import Settled
from pykoclaw_acp.store.database import Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.worker.frames import Ask


def insert(session_id: str, ask: Ask) -> Statement:
    """A worker asks."""
    request = {"title": ask.title, "kind": ask.tool_kind, "always": ask.always}
    return Statement(
        "INSERT INTO acp_permissions"
        " (permission_id, acp_session_id, turn_id, tool_call_id, request, policy, created_at)"
        " VALUES (?, ?, ?, ?, ?, 'wait', ?)",
        (ask.ask_id, session_id, ask.turn_id, ask.tool_call_id, msgspec.json.encode(request).decode(), now_ms()),
    )


def settle(settled: Settled) -> Statement:
    """The first settlement counts."""
    return Statement(
        "UPDATE acp_permissions SET outcome = ?, option_id = ?, answered_by = ?, answered_at = ?"
        " WHERE permission_id = ? AND outcome IS NULL",
        (settled.outcome, settled.option_id, settled.answered_by, now_ms(), settled.permission_id),
    )


def interrupt_all() -> Statement:
    """No worker waits for an answer any more."""
    return Statement(
        "UPDATE acp_permissions SET outcome = 'interrupted', answered_at = ? WHERE outcome IS NULL", (now_ms(),)
    )
