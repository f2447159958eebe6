"""What of a module is hidden."""

from __future__ import annotations

from tests.integration.rig import Rig


async def hidden(r: Rig) -> set[str]:
    return {
        session
        for (session,) in await r.database.read(
            "SELECT acp_session_id FROM acp_sessions WHERE pruned_at > 0"
        )
    }
