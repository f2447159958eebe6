"""The pace of live text: nothing is lost, and a client gets no more updates than it can draw."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.model.events import (
    Event,
    Text,
    TextPart,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from pykoclaw_acp.server.pace import SLACK
from pykoclaw_acp.sessions.live_pace import PER_SECOND, LivePace
from pykoclaw_acp.sessions.subscription import Subscription
from tests.integration import wires
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Client, hanging, rig
from tests.integration.wires import client
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


async def test_client_without_name_has_newest_progress(tmp_path: Path) -> None:
    """Also if nothing follows it; but never after the end of its call, and in a load at once."""
    async with rig(tmp_path) as r, client(r) as wire:
        subscriber = wire.connection.client.subscriber
        subscriber.traits = replace(subscriber.traits, progress_pause=0.2)
        session, running, worker, turn = await wires.hanging(r, wire)

        def happen(*events: Event) -> None:
            worker.say(*(_event(worker, turn, one) for one in events))

        def shown() -> list[str]:
            """What the call has shown, one after the other; its status at last."""
            calls = [one for one in wire.updates() if one.get("toolCallId") == "call"]
            texts = [part["content"]["text"] for one in calls for part in one.get("content") or ()]
            return [*texts, *(one["status"] for one in calls[-1:])]

        happen(ToolStarted("call", "Bash", "ls", "execute"), _says("a"))
        await eventually(lambda: shown() == ["a", "in_progress"])
        happen(_says("b"))
        happen(_says("c"))
        await eventually(lambda: shown()[-2:] == ["c", "in_progress"])
        assert shown() == ["a", "c", "in_progress"]
        late = wire.updates()[-1]
        assert "_meta" not in late, "its place is before that of others"
        happen(_says("d"))
        await eventually(lambda: r.sessions.live[session].last_seq == 7)
        subscriber.traits = replace(subscriber.traits, progress_pause=1000.0)
        before = len(wire.updates())
        await wires.load(wire, session)
        replayed = [one for one in wire.updates()[before:] if one.get("toolCallId") == "call"]
        assert replayed[-1]["content"][0]["content"]["text"] == "d"
        happen(_says("e"), ToolEnded("call", "completed", (TextPart("end"),)))
        await eventually(lambda: shown()[-1] == "completed")
        assert "e" not in shown()
        worker.say(worker.ended(turn))
        await wire.answer(running)


async def test_progress_of_many_calls_takes_turns(tmp_path: Path) -> None:
    """What is shown in the end is what each has done last."""
    names = [f"call-{n}" for n in range(60)]
    async with rig(tmp_path) as r, client(r, "zed") as wire:
        _, running, worker, turn = await wires.hanging(r, wire)

        def progress() -> list[str]:
            calls = [one for one in wire.updates() if one.get("status") == "in_progress"]
            return [part["content"]["text"] for one in calls for part in one.get("content") or ()]

        def say(*events: Event) -> None:
            worker.say(*(_event(worker, turn, one) for one in events))

        say(*(ToolStarted(one, "Bash", "ls", "execute") for one in names))
        begun = time.monotonic()
        for at in range(3):
            say(*(ToolProgressed(one, (TextPart(f"{one} {at}"),)) for one in names))
        await eventually(lambda: {f"{one} 2" for one in names} <= set(progress()))
        assert len(progress()) <= PER_SECOND * (time.monotonic() - begun + SLACK) + 1
        assert len(progress()) < 2 * len(names)
        worker.say(worker.ended(turn))
        await wire.answer(running)


def _says(text: str) -> ToolProgressed:
    return ToolProgressed("call", (TextPart(text),))


def _event(worker: MemoryChannel, turn_id: str, event: Event) -> EventFrame:
    made = worker.event(turn_id, "")
    return EventFrame(epoch=made.epoch, n=made.n, turn_id=turn_id, event=event)
