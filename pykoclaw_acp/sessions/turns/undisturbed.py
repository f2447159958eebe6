"""Waiting for a turn's end, which nobody sees while the database cannot be written."""

from __future__ import annotations

import asyncio

from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.ports.journal import TurnsAndNotes


async def wait(journal: TurnsAndNotes, turn: Turn, seconds: float) -> bool:
    """Wait for the turn's end, so long at most, from when the database can be written. Returns
    whether it could be all that time: what the worker has said meanwhile is known then.
    """
    await journal.writable()
    troubles = journal.troubles
    await asyncio.wait([turn.ended], timeout=seconds)
    return troubles == journal.troubles
