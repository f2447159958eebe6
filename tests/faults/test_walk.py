"""Clients, daemons, workers and a failing store in any order, all of them real: after each step
every promise holds.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tests.e2e.harness import Stack
from tests.faults.limits import FileSize, FullDisk, Limit, Locked, Moved
from tests.faults.real_world import RealFront, RealWorld
from tests.promises import ENDED, check, check_at_rest, is_shown, turns
from tests.waiting import eventually, within

WALKS: Final = 4
STEPS: Final = 50
MOST_FRONTS: Final = 4
MOST_SESSIONS: Final = 3
MOST_WAITING: Final = 3
A_MOMENT: Final = 2.0  # s, if nobody is told anything meanwhile
REST: Final = 180.0  # s; for all that is left to come to its end

pytestmark = pytest.mark.long


class Walk:
    """Each step does one thing, lets everybody go on for a moment, and looks."""

    def __init__(self, stack: Stack, chance: random.Random, limits: list[Limit]) -> None:
        self.w = RealWorld(stack)
        self.taken: list[str] = []  # steps so far, for people
        self._chance = chance
        self._limits = limits
        self._limit: Limit | None = None
        self._steps: dict[Callable[[], Awaitable[None]], int] = {
            self.new: 2, self.prompt: 10, self.load: 2, self.resume: 2, self.cancel: 2, self.reply: 4,
            self.try_again: 3, self.join: 2, self.leave: 2, self.kill_daemon: 3, self.stop_daemon: 2,
            self.kill_worker: 1, self.store_fails: 4, self.store_is_well: 4,
        }  # fmt: skip

    async def begin(self) -> None:
        await self.w.stack.daemon()
        front = await self.w.front()
        number = front.new()
        await self._answered(front, number)
        await self.prompt()

    async def step(self) -> None:
        (act,) = self._chance.choices(list(self._steps), list(self._steps.values()))
        self.taken.append(act.__name__)
        await act()
        await self._go_on(self._chance.choice((0, 1, 5, 20)))
        self._check()

    async def _answered(self, front: RealFront, number: int) -> None:
        answer = await eventually(lambda: front.asked[number].answer)
        assert answer is not None
        assert "result" in answer, answer

    async def _go_on(self, frames: int) -> None:
        """Until clients were told so much more, if they are."""

        def told() -> int:
            return sum(len(front.client.received) for front in self.w.fronts)

        enough = told() + frames
        await within(lambda: told() >= enough, A_MOMENT)

    def _check(self) -> None:
        self.w.look()
        check(self.w)

    # --- clients

    def _front(self) -> RealFront | None:
        return self._chance.choice(self.w.fronts) if self.w.fronts else None

    def _followed(self, front: RealFront | None) -> str | None:
        return (
            self._chance.choice(sorted(front.followed))
            if front is not None and front.followed
            else None
        )

    async def new(self) -> None:
        front = self._front()
        if front is not None and len(self.w.sessions) < MOST_SESSIONS:
            front.new()

    async def prompt(self) -> None:
        front = self._front()
        session = self._followed(front)
        waiting = sum(row.session == session and row.state == "queued" for row in turns(self.w))
        if front is not None and session is not None and waiting < MOST_WAITING:
            deltas, asks = self._chance.choice((5, 40, 150)), self._chance.random() < 0.25
            front.prompt(session, self.w.words(session, deltas=deltas, asks=asks))

    async def _opened(self, how: Callable[[RealFront, str], int]) -> None:
        """A session that the client has not asked for before: what it is shown must be
        told apart.
        """
        front = self._front()
        unknown = (
            [] if front is None else [one for one in self.w.sessions if one not in front.views]
        )
        if front is not None and unknown:
            how(front, self._chance.choice(unknown))

    async def load(self) -> None:
        await self._opened(RealFront.load)

    async def resume(self) -> None:
        await self._opened(RealFront.resume)

    async def cancel(self) -> None:
        front = self._front()
        session = self._followed(front)
        if front is not None and session is not None:
            self.w.disturb(session)
            front.cancel(session)

    async def reply(self) -> None:
        asked = [front for front in self.w.fronts if front.questions]
        if asked:
            self._chance.choice(asked).reply(self._chance.choice(("allow_once", "reject_once")))

    async def try_again(self) -> None:
        for front in self.w.fronts:
            front.try_again()

    async def join(self) -> None:
        if len(self.w.fronts) < MOST_FRONTS:
            await self.w.front()

    async def leave(self) -> None:
        front = self._front()
        if front is not None:
            await self.w.leave(front)

    # --- processes

    async def kill_daemon(self) -> None:
        if self.w.stack.daemon_pid() is not None:
            also = self._front() if self._chance.random() < 0.3 else None
            await self.w.end_daemon(signal.SIGKILL, also)

    async def stop_daemon(self) -> None:
        if self.w.stack.daemon_pid() is not None:
            await self.w.end_daemon(signal.SIGTERM)

    async def kill_worker(self) -> None:
        self.w.kill_worker(self._chance.choice)

    # --- the store

    async def store_fails(self) -> None:
        if self._limit is None:
            self._limit = self._chance.choice(self._limits)
            self.taken[-1:] = [type(self._limit).__name__]
            self._limit.on()

    async def store_is_well(self) -> None:
        if self._limit is not None:
            self._limit.off()
            self._limit = None

    # --- the end

    async def rest(self) -> None:
        """Everybody does what he would, until nobody waits for anything."""

        def over() -> bool | Awaitable[bool]:
            return self._over()

        await self.store_is_well()
        self.w.look()
        await self.w.serves()
        await eventually(over, REST)
        await eventually(lambda: is_shown(self.w), REST)
        self._check()
        check_at_rest(self.w)

    async def _over(self) -> bool:
        for front in self.w.fronts:
            front.try_again()
            if front.questions:
                front.reply("allow_once")
        left = [row for row in turns(self.w) if row.state not in ENDED]
        for row in left:
            if not any(
                row.session in front.followed or front.wanted[row.session]
                for front in self.w.fronts
            ):
                (await self.w.front()).load(row.session)  # somebody must answer
        return not left and not any(front.open or front.questions for front in self.w.fronts)

    async def compare_with_a_new_client(self) -> None:
        """Whoever has seen a session from its beginning has seen what a load shows."""
        reader = await self.w.front()
        for session in self.w.sessions:
            number = reader.load(session)
            await self._answered(reader, number)
            for front in self.w.fronts:
                view = front.views.get(session)
                if view is not None and view.start == 0 and session in front.followed:
                    assert view.text == reader.views[session].text


@pytest.mark.parametrize("seed", range(WALKS))
async def test_every_promise_holds_in_any_event_order(stack: Stack, seed: int) -> None:
    stack.environment |= {"PYKOCLAW_REJOIN_WINDOW": "5", "PYKOCLAW_DAEMON_TIMEOUT": "600"}
    limits: list[Limit] = [Locked(stack), Moved(stack)]
    limits.append(
        FullDisk(stack) if seed % 2 else FileSize(stack)
    )  # only one of them before there is a directory
    walk = Walk(stack, random.Random(seed), limits)
    try:
        await walk.begin()
        for _ in range(STEPS):
            await walk.step()
        await walk.rest()
        await walk.w.end_daemon(signal.SIGTERM)
        await walk.rest()
        await walk.compare_with_a_new_client()
    except Exception as error:
        error.add_note(f"seed {seed}: {', '.join(walk.taken)}")
        raise
    finally:
        await walk.store_is_well()
        walk.w.close()
