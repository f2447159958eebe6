"""What takes time, while the wall clock is set hours forward or back, within a boot and from one to
the next.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pykoclaw_acp.sessions.retention import Pruner
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.system import clock, processes
from tests.integration.asking import LONG, begin, restarted, rig
from tests.integration.linked import front, new, prompts, words
from tests.integration.rig import Rig
from tests.integration.rig import rig as pool_rig
from tests.integration.surface import hidden
from tests.waiting import eventually

HOURS = pytest.mark.parametrize("hours", [-5, 5])


class Machine:
    """Its clocks, as the test sets them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._time, self._time_ns, self._uptime = time.time, time.time_ns, clock.uptime

    def set_wall(self, hours: float) -> None:
        self._patch.setattr(time, "time", lambda: self._time() + hours * 3600)
        self._patch.setattr(time, "time_ns", lambda: self._time_ns() + int(hours * 3600 * 10**9))

    def later(self, seconds: float) -> None:
        """It has been awake for longer."""
        self._patch.setattr(clock, "uptime", lambda: self._uptime() + int(seconds * 1000))

    def reboot(self, awake: float = 0) -> None:
        """It has been started anew, `awake` s ago."""
        self._patch.setattr(processes, "boot_id", lambda: "the next boot")
        began = self._uptime()
        self._patch.setattr(clock, "uptime", lambda: self._uptime() - began + int(awake * 1000))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


async def left(r: Rig) -> set[str]:
    """What a pruner hides that looks for what was left alone for an hour."""
    await Pruner(r.sessions, SessionJournal(r.database), after=3600).prune()
    return await hidden(r)


@HOURS
async def test_setting_wall_clock_prunes_nothing(
    tmp_path: Path, machine: Machine, hours: float
) -> None:
    async with pool_rig(tmp_path) as r:
        session = await r.session()
        machine.set_wall(hours)
        assert await left(r) == set()
        machine.later(3601)
        assert await left(r) == {session.id}


@HOURS
async def test_session_is_pruned_on_time_after_reboot(
    tmp_path: Path, machine: Machine, hours: float
) -> None:
    async with pool_rig(tmp_path) as r:
        session = await r.session()
        machine.later(1000)
        await SessionJournal(r.database).note_time()
    machine.reboot()
    machine.set_wall(hours)
    async with pool_rig(tmp_path) as r:
        assert await left(r) == set()
        machine.reboot(awake=2500)
        assert await left(r) == set()
    async with pool_rig(tmp_path) as r:
        assert await left(r) == set()
        machine.reboot(awake=2601)  # with the 1000 s of the boot before
        assert await left(r) == {session.id}


@HOURS
@pytest.mark.parametrize("reboot", [False, True])
async def test_repeated_prompt_joins_turn_of_earlier_daemon(
    tmp_path: Path, machine: Machine, hours: float, reboot: bool
) -> None:
    async with pool_rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
    if reboot:
        machine.reboot()
    machine.set_wall(hours)
    async with pool_rig(tmp_path) as r, front(r, "front-2") as two:
        await two.result(1, "session/resume", sessionId=session, cwd="/")
        await two.result(2, "session/prompt", **words(session, "say 1"))
        assert prompts(r) == []
        await two.result(3, "session/prompt", **words(session, "say 2"))
        assert prompts(r) == ["say 2"]


@HOURS
async def test_prompt_repeated_too_late_is_new(
    tmp_path: Path, machine: Machine, hours: float
) -> None:
    async with pool_rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
    machine.set_wall(hours)
    async with pool_rig(tmp_path) as r, front(r, "front-2") as two:
        machine.later(121)
        await two.result(1, "session/resume", sessionId=session, cwd="/")
        await two.result(2, "session/prompt", **words(session, "say 1"))
        assert prompts(r) == ["say 1"]


@HOURS
async def test_a_deadline_goes_on_where_it_was(
    tmp_path: Path, machine: Machine, hours: float
) -> None:
    async with rig(tmp_path, "wait", timeout=LONG) as r:
        asking = await begin(r)
        asking.ask("q1")
        await asking.away("q1")
        machine.later(1000)
        machine.set_wall(hours)
        asking.session = await restarted(r, asking)
        await asking.times_out_in("q1", LONG - 1000)


@HOURS
async def test_repeated_cancel_spares_later_prompt_of_other_front(
    tmp_path: Path, machine: Machine, hours: float
) -> None:
    def shown() -> list[int]:
        return [time.time_ns() // 1_000_000, clock.uptime()]

    async with pool_rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: len(prompts(r)) == 1)
        machine.later(10)
        cancelled_at = clock.uptime()
        machine.later(20)
        machine.set_wall(hours)
        async with front(r, "front-2", clocks=shown()) as two:
            await two.result(1, "session/resume", sessionId=session, cwd="/")
            two.call(2, "session/prompt", **words(session, "say 1"))
            await eventually(lambda: len(next(iter(r.sessions.live.values())).turns) == 2)
            hello = shown()
            async with front(r, "front-3", clocks=hello) as three:
                at = hello[0] - (hello[1] - cancelled_at)
                await three.result(1, "session/resume", sessionId=session, cwd="/")
                three.notify(2, "session/cancel", again=at, sessionId=session)
                assert (await one.answer(2))["result"]["stopReason"] == "cancelled"
                assert (await two.answer(2))["result"]["stopReason"] == "end_turn"
