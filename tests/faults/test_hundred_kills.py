"""A busy system in which one random process after the other is SIGKILLed: nothing is left over,
lost or run twice.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from functools import partial
from typing import Final

from tests.e2e.harness import Process, Stack
from tests.e2e.harness.processes import FORK_SERVER, READER
from tests.faults.talking import MARKER, Talker, check_turns, check_updates
from tests.waiting import eventually

LONG: Final = os.environ.get("PYKOCLAW_TEST_LONG") == "1"
KILLS: Final = 100 if LONG else 3
SEED: Final = 20261120
SESSIONS: Final = 6
ROLES: Final = ("daemon", "fork server", "worker", "claude", "front")
AT_ONCE: Final = 5  # kills, after which everybody is given the time to go on
ENOUGH: Final = 120.0  # s; for whatever a busy machine has to do
TIDY_WITHIN: Final = 2.0  # s after there is a daemon, which a kill may have ended
LONGEST: Final = 40.0 * KILLS  # s; only against a test that would never end


class System:
    """All processes of the stack, and what is wrong with them."""

    def __init__(self, stack: Stack, talkers: list[Talker]) -> None:
        self._stack = stack
        self._talkers = talkers

    async def kill_one(self, chance: random.Random) -> str:
        """SIGKILL a process of a random role, and wait until it is gone; returns the role."""
        found: dict[str, list[Process]] = {role: [] for role in ROLES}
        for process in sorted(self._stack.processes(), key=lambda one: one.pid):
            if (role := self._role(process)) in found:
                found[role].append(process)
        role = chance.choice([role for role in ROLES if found[role]])
        victim = chance.choice(found[role])
        victim.kill()
        await eventually(lambda: not (victim.alive or self._stack.daemon_pid() == victim.pid))
        return role

    async def tidy(self) -> None:
        """There is a daemon, and soon after that nothing is left that belongs to nobody."""
        await eventually(self._serves)
        try:
            await eventually(lambda: not self.strays(), TIDY_WITHIN * _slowness())
        except AssertionError:
            raise AssertionError(f"not tidy in time: {self.strays()}") from None

    def strays(self) -> list[str]:
        """What belongs to nothing, for people."""
        processes = self._stack.processes()
        rows = self._stack.rows("SELECT pid, acp_session_id, epoch FROM acp_workers")
        workers = {row["pid"]: (row["acp_session_id"], row["epoch"]) for row in rows}
        alive = [workers[one.pid] for one in processes if one.is_worker and one.pid in workers]
        wrong = [
            f"more than one worker: {session}"
            for session, count in Counter(w[0] for w in alive).items()
            if count > 1
        ]
        for process in processes:
            role = self._role(process)
            if (
                (role == "worker" and process.pid not in workers)
                or (role == "fork server" and process.parent != self._stack.daemon_pid())
                or (process.session is not None and (process.session, process.epoch) not in alive)
                or role == "unknown"
            ):
                wrong.append(f"{role}: {process}")
        return wrong

    def _serves(self) -> bool:
        pid = self._stack.daemon_pid()
        return pid is not None and self._stack.serves(pid)

    def _role(self, process: Process) -> str:
        if process.is_worker:
            return "worker"
        if process.is_claude:
            return "claude"
        if process.session is not None:
            return "tool"
        if FORK_SERVER in process.command:
            return "fork server"
        if READER in process.command:
            return "reader"
        if process.pid in {
            front.process.pid for talker in self._talkers for front in talker.fronts
        }:
            return "front"
        return "daemon" if process.pid == self._stack.daemon_pid() else "unknown"


async def test_random_kills_leave_nothing_behind_and_lose_nothing(stack: Stack) -> None:
    chance, stop = random.Random(SEED), asyncio.Event()
    talkers = [Talker(stack, number) for number in range(SESSIONS)]
    await asyncio.gather(*(talker.begin() for talker in talkers))
    killed: list[str] = []
    async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as talking:
        for talker in talkers:
            talking.create_task(talker.talk(stop))
        while len(killed) < KILLS:
            await _go_on(talkers)
            killed += await _kill_some(System(stack, talkers), chance, talkers)
            assert stack.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        stop.set()
    if LONG:  # few kills need not meet every role
        assert set(killed) == set(ROLES)

    for talker in talkers:
        assert await talker.ask("text the last answer") == "done"
        check_turns(stack, talker)
        await check_updates(stack, talker)
    _check_model(stack)
    assert stack.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    for talker in talkers:
        await talker.front.call("session/close", sessionId=talker.session)
    assert not [one for one in stack.processes() if one.session is not None or one.is_worker]


def _slowness() -> float:
    """1, or more on a machine that has so much else to do that nothing is in time."""
    return max(1.0, os.getloadavg()[0] / (4 * (os.cpu_count() or 1)))


async def _go_on(talkers: list[Talker]) -> None:
    """Wait until every session had an answer, whatever was killed before."""
    before = [len(talker.outcomes) for talker in talkers]
    await eventually(
        lambda: all(len(one.outcomes) > count for one, count in zip(talkers, before, strict=True)),
        ENOUGH,
    )


async def _kill_some(system: System, chance: random.Random, talkers: list[Talker]) -> list[str]:
    """SIGKILL one or two processes, see that all is tidy again, and so on; returns the roles of
    those killed.
    """
    killed: list[str] = []
    while len(killed) < AT_ONCE:
        enough = sum(talker.shown for talker in talkers) + chance.randrange(1, 150)
        await eventually(
            partial(lambda shown: sum(talker.shown for talker in talkers) >= shown, enough), ENOUGH
        )
        killed += [await system.kill_one(chance) for _ in range(chance.choice((1, 1, 1, 2)))]
        await system.tidy()
    return killed


def _check_model(stack: Stack) -> None:
    """No prompt reached the model twice: each is the newest message of at most one request."""
    newest = [
        found[-1] for one in stack.asked() if (found := MARKER.findall(one["messages"][-1]["text"]))
    ]
    assert len(newest) == len(set(newest)), [
        marker for marker, count in Counter(newest).items() if count > 1
    ]
