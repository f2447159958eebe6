"""`acp_cursors`: how far each client, known by its name, has seen a session.

A place beyond the log's end is of a log that was put back to an earlier state, and counts as none.
"""

from __future__ import annotations

from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.logs import LAST_SEQ
from pykoclaw_acp.store.sessions import now_ms


def confirm(session_id: str, client: str, seq: int) -> Statement:
    """The client's place moves on, never back, unless the log has been."""
    return Statement(
        "INSERT INTO acp_cursors (acp_session_id, client, seq, updated_at) VALUES (?, ?, ?, ?)"  # noqa: S608
        " ON CONFLICT (acp_session_id, client) DO UPDATE SET seq = excluded.seq, updated_at = excluded.updated_at"
        " WHERE excluded.seq > acp_cursors.seq OR acp_cursors.seq >"
        f" (SELECT {LAST_SEQ} FROM acp_sessions s WHERE s.acp_session_id = excluded.acp_session_id)",
        (session_id, client, seq, now_ms()),
    )


async def confirmed(database: Database, session_id: str, client: str) -> int | None:
    """The client's place; None if it was never shown anything."""
    rows = await database.read(
        "SELECT c.seq FROM acp_cursors c JOIN acp_sessions s ON s.acp_session_id = c.acp_session_id"  # noqa: S608
        f" WHERE c.acp_session_id = ? AND c.client = ? AND c.seq <= {LAST_SEQ}",
        (session_id, client),
    )
    return int(rows[0][0]) if rows else None
