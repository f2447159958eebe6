"""`acp_session_options`: what clients asked of Claude for a session, besides what `acp_sessions` has."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.store.database import Statement


def keep(session_id: str, options: SessionOptions) -> Statement:
    """Store the session's options."""
    return Statement(
        "INSERT INTO acp_session_options (acp_session_id, options) VALUES (?, ?)"
        " ON CONFLICT (acp_session_id) DO UPDATE SET options = excluded.options",
        (session_id, msgspec.json.encode(options).decode()),
    )
