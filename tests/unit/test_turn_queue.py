"""The queue of a session's turns, held between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pykoclaw_acp.errors import Overloaded
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.sessions.turns.queue import (
    MOST_TEXT,
    MOST_TEXT_ALL,
    MOST_WAITING,
    AllWaiting,
    TurnQueue,
)
from pykoclaw_acp.tasks import Tasks
from tests.waiting import eventually, within

DONE = Outcome(TurnState.DONE)


class Runs:
    """A queue whose turns end when a test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.rests = 0
        self.queue = TurnQueue(AllWaiting())
        self.tasks = Tasks()

    def add(self, turn: Turn) -> None:
        self.queue.add(turn)
        if not self.tasks:
            self.tasks.start(self._run())

    async def _run(self) -> None:
        if self.queue.current is not None:
            await self.queue.current.over()
        while (turn := await self.queue.next()) is not None:
            self.begun.append(turn.turn_id)
            await turn.over()
        self.rests += 1

    async def idle(self) -> None:
        await asyncio.gather(*self.tasks)


def end(turn: Turn) -> None:
    turn.ended.set_result((DONE, 0))


@pytest.fixture
async def runs() -> AsyncIterator[Runs]:
    made = Runs()
    yield made
    await made.tasks.end()


async def test_hold_right_after_another_begins_no_turn(runs: Runs) -> None:
    with runs.queue.hold():
        runs.add(Turn("first", "s", []))
        assert not await within(lambda: runs.begun, 0.05)
    with runs.queue.hold():
        assert not await within(lambda: runs.begun, 0.05)
    await eventually(lambda: runs.begun == ["first"])
    assert runs.queue.current is not None
    end(runs.queue.current)
    await runs.idle()


async def test_held_queue_begins_no_turn_until_released(runs: Runs) -> None:
    first, second = Turn("first", "s", []), Turn("second", "s", [])
    runs.add(first)
    runs.add(second)
    await eventually(lambda: runs.begun == ["first"])
    with runs.queue.hold():
        end(first)
        await eventually(lambda: runs.queue.current is None)
        assert not await within(lambda: len(runs.begun) > 1, 0.1)
    await eventually(lambda: runs.begun == ["first", "second"])
    end(second)
    await runs.idle()
    assert runs.rests == 1


async def test_idle_queue_that_is_held_begins_no_turn(runs: Runs) -> None:
    turn = Turn("turn", "s", [])
    with runs.queue.hold():
        runs.add(turn)
        assert not await within(lambda: runs.begun, 0.1)
    await eventually(lambda: runs.begun == ["turn"])
    end(turn)


async def test_another_daemons_turn_leaves_queue_at_end(runs: Runs) -> None:
    adopted, waiting = Turn("adopted", "s", []), Turn("waiting", "s", [])
    runs.queue.go_on(adopted)
    runs.add(waiting)
    with runs.queue.hold():
        end(adopted)
        await eventually(lambda: runs.queue.current is None)
        assert runs.begun == []
    await eventually(lambda: runs.begun == ["waiting"])
    end(waiting)


async def test_turn_removed_while_held_is_not_begun(runs: Runs) -> None:
    turn = Turn("turn", "s", [])
    with runs.queue.hold():
        runs.add(turn)
        await asyncio.sleep(0)
        assert runs.queue.remove(turn)
    await runs.idle()
    assert runs.begun == []


async def test_adopted_turn_is_answered_with_unattended_ones() -> None:
    queue = TurnQueue(AllWaiting())
    host, own, unattended = (Turn(name, "s", []) for name in ("host", "own", "unattended"))
    unattended.unattended = True
    queue.go_on(host, [own, unattended])
    assert queue.steered == [own, unattended]
    assert list(host.with_answered()) == [host, unattended]


def steered(name: str, *, size: int = 1) -> Turn:
    turn = Turn(name, "s", [{"type": "text", "text": "x" * size}])
    turn.steers = turn.unattended = True
    return turn


async def test_prompt_is_answered_with_response_nearest_before_it() -> None:
    """Of its own client: what runs has no response, as it came by `_session/steering`, too."""
    queue = TurnQueue(AllWaiting())
    queue.current = steered("current")
    turns = first, last, other = [Turn(name, "s", []) for name in ("first", "last", "other")]
    other.client_process = "another"
    for turn in turns:
        queue.add(turn)
    given, waits = steered("given"), steered("waits")
    queue.steer(given)
    queue.add(waits)
    answered = [list(turn.with_answered()) for turn in turns]
    assert answered == [[first], [last, waits], [other]]


async def test_later_prompts_are_answered_with_first_response() -> None:
    queue = TurnQueue(AllWaiting())
    queue.current = host = Turn("host", "s", [])
    first, second, third, taken_back = map(steered, ("first", "second", "third", "taken back"))
    queue.steer(first)
    end(host)
    assert await queue.next() is first
    queue.steer(second)
    queue.add(third)
    queue.steer(taken_back)
    queue.take_back(taken_back)
    assert list(host.with_answered()) == [host, first, second, third]
    queue.add(taken_back)
    assert [*host.with_answered()].count(taken_back) == 1


async def test_prompts_given_to_running_turn_take_room() -> None:
    waiting = AllWaiting()
    queue = TurnQueue(waiting)
    queue.current = Turn("host", "s", [])
    given = [steered(str(each)) for each in range(MOST_WAITING)]
    for one in given:
        queue.require_room(one)
        queue.steer(one)
    with pytest.raises(Overloaded):
        queue.require_room(steered("more"))
    end(given[0])
    await asyncio.sleep(0)
    queue.require_room(steered("more"))
    half = steered("half", size=MOST_TEXT // 2)
    queue.steer(half)
    with pytest.raises(Overloaded):
        queue.require_room(steered("too long", size=MOST_TEXT // 2))
    others = [TurnQueue(waiting) for _ in range(MOST_TEXT_ALL // MOST_TEXT)]
    for other in others:
        other.current = Turn("host", "s", [])
        other.steer(steered("long", size=MOST_TEXT - 1000))
    with pytest.raises(Overloaded):
        TurnQueue(waiting).require_room(steered("too much", size=MOST_TEXT // 2))
