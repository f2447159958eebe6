"""Prompts that were cancelled while they waited, and of which the log is yet to say so: it does when
the turn that runs has ended.
"""

from __future__ import annotations

from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.turns import content


def note(turn_id: str) -> Statement:
    """The log is yet to say what this prompt was."""
    return Statement("UPDATE acp_turns SET unsaid = 1 WHERE turn_id = ?", (turn_id,))


def said(turn_id: str) -> Statement:
    """The log says it now. Fails with Conflict if it does already, or there is no such turn."""
    return Statement(
        "UPDATE acp_turns SET unsaid = NULL WHERE turn_id = ? AND unsaid = 1", (turn_id,), rows=1
    )


async def find(database: Database) -> list[Turn]:
    """Return the prompts that the log does not mention yet, per session in the order of sending."""
    rows = await database.read(
        "SELECT turn_id, acp_session_id, prompt FROM acp_turns WHERE unsaid = 1"
        " ORDER BY acp_session_id, position"
    )
    return [Turn(turn_id, session_id, content(prompt)) for turn_id, session_id, prompt in rows]
