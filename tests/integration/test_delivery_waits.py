"""How long prompts wait for deliveries: not for looks at transcripts, nor for all that is left."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.sessions import delivered_turns, deliveries
from pykoclaw_acp.sessions.other_programs import OtherPrograms
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from tests.integration.delivering import attached, delivering, name
from tests.integration.queueing import enqueue, status
from tests.integration.rig import rig
from tests.waiting import eventually


def is_delivered(path: Path, delivery: str) -> bool:
    return status(path, delivery) == "delivered"


async def test_prompts_run_while_transcripts_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivered_turns, "LOOKS", (0.0, 3600.0))
    looked, look = list[OtherPrograms](), OtherPrograms.look_if_possible

    async def noted(others: OtherPrograms) -> None:
        looked.append(others)
        await look(others)

    monkeypatch.setattr(OtherPrograms, "look_if_possible", noted)
    async with rig(tmp_path) as r:
        sessions = [await r.session() for _ in range(delivered_turns.MOST_LOOKS + 1)]
        waiting = [enqueue(r.database.path, name(one), "news") for one in sessions]
        async with delivering(r):
            await eventually(lambda: len(looked) == delivered_turns.MOST_LOOKS)
            for one in sessions:
                await r.run(one, "say 1")
            assert {status(r.database.path, one) for one in waiting} == {"pending"}


async def test_waiting_prompt_runs_before_deliveries_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LONGEST_HOLD", 0.0)
    deliver, begun, prompted = SqlDeliveryStore.deliver, asyncio.Event(), asyncio.Event()

    async def slow(store: SqlDeliveryStore, *given: Any, **named: Any) -> Any:
        begun.set()
        await prompted.wait()
        return await deliver(store, *given, **named)

    monkeypatch.setattr(SqlDeliveryStore, "deliver", slow)
    async with rig(tmp_path) as r:
        session, client = await attached(r)
        sent = [enqueue(r.database.path, name(session), f"[{number}]") for number in range(3)]
        async with delivering(r):
            await asyncio.wait_for(begun.wait(), 30)
            turn = await r.prompt(session, "say 1")
            prompted.set()
            for one in sent:
                await eventually(partial(is_delivered, r.database.path, one))
            await eventually(lambda: client.shown[-1].seq == session.last_seq)
    first, *of_turn, second, third = client.shown
    assert {one.turn_id for one in of_turn} == {turn.turn_id}
    assert [one.turn_id for one in (first, second, third)] == [None] * 3
    assert sorted(["[0]", "[1]", "[2]"], key=client.text.index) == ["[0]", "[1]", "[2]"]
