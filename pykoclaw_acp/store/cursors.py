"""`acp_cursors`: how far each client, known by its name, has seen a session."""

from __future__ import annotations

from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms


def confirm(session_id: str, client: str, seq: int) -> Statement:
    """The client's place moves on, never back."""
    return Statement(
        "INSERT INTO acp_cursors (acp_session_id, client, seq, updated_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (acp_session_id, client) DO UPDATE SET seq = excluded.seq, updated_at = excluded.updated_at"
        " WHERE excluded.seq > acp_cursors.seq",
        (session_id, client, seq, now_ms()),
    )


async def confirmed(database: Database, session_id: str, client: str) -> int | None:
    """The client's place; None if it was never shown anything."""
    rows = await database.read(
        "SELECT seq FROM acp_cursors WHERE acp_session_id = ? AND client = ?", (session_id, client)
    )
    return int(rows[0][0]) if rows else None
