"""The worker's frames: numbered, merged while unsent, kept until acknowledged, bounded."""

from __future__ import annotations

import asyncio

import pytest

from pykoclaw_acp.sessions.events import Text, Thinking
from pykoclaw_acp.worker.frames import EventFrame, encode, from_worker
from pykoclaw_acp.worker.outbox import MAX_UNACKNOWLEDGED, MAX_UNSENT, Outbox


def frame(text: str, message_id: str = "m", turn_id: str = "t", kind: type[Text | Thinking] = Text) -> EventFrame:
    return EventFrame(epoch=1, turn_id=turn_id, event=kind(message_id, text))


def sent(data: bytes) -> list[tuple[int, str]]:
    frames = [from_worker.decode(line) for line in data.splitlines()]
    return [(f.n, f.event.text) for f in frames if isinstance(f, EventFrame) and isinstance(f.event, Text | Thinking)]


async def test_unsent_deltas_of_one_message_are_one_event() -> None:
    outbox = Outbox()
    for text in ("a", "b", "c"):
        outbox.put(frame(text))
    outbox.put(frame("x", message_id="other"))
    outbox.put(frame("y", message_id="other", kind=Thinking))
    outbox.put(frame("z", message_id="other", kind=Thinking, turn_id="t2"))
    assert sent(await outbox.take()) == [(1, "abc"), (2, "x"), (3, "y"), (4, "z")]
    outbox.put(frame("d"))
    assert sent(await outbox.take()) == [(5, "d")]


async def test_nothing_more_is_sent_while_too_much_is_unacknowledged() -> None:
    outbox = Outbox()
    for at in range(4):
        outbox.put(frame("x" * (MAX_UNACKNOWLEDGED // 2), message_id=str(at)))
    assert [n for n, _ in sent(await outbox.take())] == [1, 2]
    waiting = asyncio.ensure_future(outbox.take())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.02)
    outbox.acknowledge(1)
    assert [n for n, _ in sent(await waiting)] == [3]
    outbox.acknowledge(3)
    assert not outbox.empty
    assert [n for n, _ in sent(await outbox.take())] == [4]
    outbox.acknowledge(4)
    await asyncio.wait_for(outbox.drained(), 1)


def test_half_an_emoji_from_a_model_or_a_tool_ends_nothing() -> None:
    [(_, text)] = sent(encode(frame("half \ud83d")))
    assert text == "half ?"


async def test_producers_wait_when_the_daemon_is_slow() -> None:
    outbox = Outbox()
    for at in range(MAX_UNSENT):
        outbox.put(frame("x", message_id=str(at)))
    room = asyncio.ensure_future(outbox.room())
    await asyncio.sleep(0)
    assert not room.done()
    await outbox.take()
    await asyncio.wait_for(room, 1)
