"""A client that waited for news is shown an event at once: only its own work counts as its slice."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from pykoclaw_acp import tasks
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.sessions import subscription
from tests.integration.rig import Client, rig
from tests.waiting import eventually


class Direct(Client):
    """Takes what it is shown without a turn of the loop."""

    async def deliver(self, session_id: str, logged: Logged) -> None:
        self.shown.append(logged)


async def test_live_event_costs_no_extra_loop_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(tasks.Pace):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    made: list[tasks.Pace] = []
    used = 0.0
    monkeypatch.setattr(subscription, "Pace", Counted)
    async with rig(tmp_path) as r:
        session = await r.sessions.create("/", (), ())
        client = Direct()
        session.subscribe(client, 0)
        monkeypatch.setattr("pykoclaw_acp.tasks.time.thread_time", lambda: used)
        for at in range(5):
            for _ in range(3):
                await asyncio.sleep(0)
            used += 1.0  # s that others have worked meanwhile
            await session.log.tell([Text(f"m{at}", f"{at} ")])
            await eventually(partial(_shown, client, at + 1))
    assert len(made) >= 5
    assert not any(pace.paused for pace in made)


def _shown(client: Direct, count: int) -> bool:
    return len(client.shown) == count
