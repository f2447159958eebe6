"""The pace of live text: nothing is lost, and a client gets no more updates than it can draw."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.model.events import Text, ToolStarted
from pykoclaw_acp.sessions.live_pace import PER_SECOND, LivePace
from pykoclaw_acp.sessions.subscription import Subscription
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Client, hanging, rig
from tests.waiting import eventually


async def test_all_subscriptions_of_a_client_share_its_pace() -> None:
    now = 100.0
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    pace = LivePace(lambda: now, sleep)
    await pace.turn()
    assert waits == [], "the first turn waits"
    for _ in range(2 * PER_SECOND):
        await pace.turn()
    assert waits[-1] == pytest.approx(2)
    now += 10
    waits.clear()
    await pace.turn()
    assert waits == [], "a pause is no credit, and no debt"


async def test_waiting_text_is_one_update_and_nothing_stalls(tmp_path: Path) -> None:
    turns = asyncio.Queue[None]()

    async def wait(_: float) -> None:
        await turns.get()

    async with rig(tmp_path) as r:
        session, turn, worker = await hanging(r)
        client = Client()
        subscription: Subscription = session.subscribe(client, session.last_seq)
        subscription.pace = LivePace(lambda: 0.0, wait)

        async def say(*texts: str) -> None:
            worker.say(*(worker.event(turn.turn_id, text) for text in texts))
            last = session.last_seq + len(texts)
            await eventually(lambda: session.last_seq >= last)

        await say("a")
        await eventually(lambda: client.text == "a")
        await say("b")
        await eventually(lambda: client.text == "ab")  # the first turn is free
        for number in range(100):
            await say(f"{number},")
        assert client.text == "ab"
        turns.put_nowait(None)
        whole = "ab" + "".join(f"{number}," for number in range(100))
        await eventually(lambda: client.text == whole)
        assert [one.event.text for one in client.shown if isinstance(one.event, Text)] == [
            "a",
            "b",
            whole[2:],
        ]
        start = ToolStarted("call", "Bash", "ls", "execute")
        worker.say(_event(worker, turn.turn_id, start))
        await eventually(lambda: isinstance(client.shown[-1].event, ToolStarted))
        worker.say(worker.event(turn.turn_id, "after it"), worker.ended(turn.turn_id))
        await turn.ended
        await eventually(lambda: client.text == f"{whole}after it")
        assert client.places == list(range(client.places[0], client.places[-1] + 1))


def _event(worker: MemoryChannel, turn_id: str, event: ToolStarted) -> EventFrame:
    made = worker.event(turn_id, "")
    return EventFrame(epoch=made.epoch, n=made.n, turn_id=turn_id, event=event)
