"""A read that fails at start-up since another program has the database locked says nothing of a
session.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.events import OpenTools
from pykoclaw_acp.server import recovery
from pykoclaw_acp.store import events
from pykoclaw_acp.store.database import Database, Statement, Unit
from tests.integration.adopting import recovered
from tests.integration.rig import Rig, rig

TURN = (
    "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at, epoch,"
    """ position) VALUES ('t', ?, 'client', '[{"type":"text","text":"hi"}]', 'running', 1, 1, 1)"""
)


def locked(patch: pytest.MonkeyPatch, times: int) -> None:
    """So many looks at the open tools of a turn fail."""
    left, real = times, events.open_tools

    async def open_tools(database: Database, session_id: str, epoch: int) -> OpenTools:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreUnavailable("locked", "Another program keeps the database locked.")
        return await real(database, session_id, epoch)

    patch.setattr(events, "open_tools", open_tools)
    patch.setattr(recovery, "PAUSE", 0)


async def dead(r: Rig) -> str:
    """A session whose turn ran on a worker that is gone."""
    session = await r.session()
    await r.database.commit(Unit((Statement(TURN, (session.id,)),)))
    return session.id


async def test_turn_of_dead_worker_ends_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session_id = await dead(r)
        locked(monkeypatch, 2)
        await recovered(r, tmp_path)
        assert await r.states() == {"t": "unknown"}
        assert await r.journal.read(session_id, 0, 10), "the log says how it ended"


async def test_lasting_lock_ends_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        await dead(r)
        with monkeypatch.context() as patch:
            locked(patch, 1000)
            with pytest.raises(StoreUnavailable):
                await recovered(r, tmp_path)
        assert await r.states() == {"t": "running"}, "the next start ends it"
