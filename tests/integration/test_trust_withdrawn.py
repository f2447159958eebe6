"""Trust that is withdrawn, or given for other content than there is by now, counts no more for any
prompt that Claude does not have yet.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pykoclaw_acp.channel.frames import Stop
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.turns import Turn, TurnState
from pykoclaw_acp.sessions.workspace_gate import LOOKS
from pykoclaw_acp.trust.watch import Watch
from tests.integration.asking import choice
from tests.integration.callers import caller
from tests.integration.rig import Rig, take_up
from tests.integration.trusting import Working, act, over, rig
from tests.waiting import eventually


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    act(path, "true")
    return path


async def test_trust_withdrawn_while_worker_starts_is_asked_for(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt's answer of before is no trust any more, and its worker gets no prompt."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        acquire = r.pool.acquire

        async def acquire_late(session_id: str, options: Any) -> int:
            if not one.options:
                await cli.call("trust/remove", path=str(work))
            return await acquire(session_id, options)

        monkeypatch.setattr(r.pool, "acquire", acquire_late)
        turn = await one.prompt()
        await one.person.answer(await one.asked(), choice("allow_always"))
        await one.person.answer(await one.asked(2), choice("allow_once"))
        assert (await over(turn)).state == "done"
        assert [each.restricted for each in one.options] == [False, True]
        assert r.launcher.launched[0].prompts == []


@pytest.mark.parametrize(
    ("option", "then", "run"),
    [
        ("allow_always", "nothing", True),
        ("allow_always", "change", False),
        ("allow_always", "withdraw", False),
        ("allow_once", "change", True),  # it has no hooks but the user's own
    ],
)
async def test_hooks_run_at_end_only_with_trust(
    option: str, then: str, run: bool, tmp_path: Path, work: Path
) -> None:
    async with rig(tmp_path, stop_grace=60.0) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), option)
        (worker,) = r.launcher.launched
        if then == "change":
            act(work, "curl")
        elif then == "withdraw":
            await cli.call("trust/remove", path=str(work))
        r.pool.retire(one.session.id)
        await eventually(lambda: worker.dead)
        assert [each.hooks for each in worker.got if isinstance(each, Stop)] == [run]


async def test_hanging_look_ends_worker_without_hooks(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, stop_grace=0.1) as r:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_always")
        (worker,) = r.launcher.launched

        async def hang(*_: object) -> bool:
            return await asyncio.Event().wait()

        monkeypatch.setattr(Watch, "unchanged", hang)
        r.pool.retire(one.session.id)
        await eventually(lambda: worker.dead)
        assert [each.hooks for each in worker.got if isinstance(each, Stop)] == [False]


async def test_content_changing_at_each_look_fails_turn(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        for number in range(1, LOOKS + 1):
            asked = await one.asked(number)
            act(work, f"echo {number}")
            await one.person.answer(asked, choice("allow_once"))
        await failed_unsent(r, turn)
        assert r.launcher.launched == []


async def test_content_changing_during_each_start_fails_turn(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        acquire = r.pool.acquire

        async def acquire_first(session_id: str, options: Any) -> int:
            epoch = await acquire(session_id, options)
            act(work, f"echo {epoch}")
            return epoch

        monkeypatch.setattr(r.pool, "acquire", acquire_first)
        turn = await one.prompt()
        for number in range(1, LOOKS + 1):
            await one.person.answer(await one.asked(number), choice("allow_once"))
        await failed_unsent(r, turn)
        assert len(r.launcher.launched) == LOOKS


async def failed_unsent(r: Rig, turn: Turn) -> None:
    """The turn, the only one, failed as its directory keeps changing; no worker got its prompt."""
    outcome = await over(turn)
    assert outcome.failure is not None
    assert outcome.failure.kind == ErrorKind.WORKSPACE_CHANGING
    assert await r.states() == {turn.turn_id: "failed"}
    assert [one.prompts for one in r.launcher.launched if one.prompts] == []


async def test_no_prompt_goes_into_turn_without_trust(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_always")
        host = await one.prompt("hang")
        worker = r.launcher.launched[-1]
        await eventually(lambda: host.taken_up)
        content = [{"type": "text", "text": "Look out."}]
        into, waits = (Turn(str(uuid4()), one.session.id, content, steers=True) for _ in range(2))
        await one.session.submit(into)
        await eventually(lambda: [each for each in worker.got if isinstance(each, Steer)])
        await cli.call("trust/remove", path=str(work))
        await one.session.submit(waits)
        assert len([each for each in worker.got if isinstance(each, Steer)]) == 1
        assert waits.state == TurnState.QUEUED
        take_up(worker, into, host)
        worker.say(worker.ended(host.turn_id), worker.ended(into.turn_id))
        await one.asked(2)  # before it is sent


async def test_answer_counts_while_trust_elsewhere_is_looked_for(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        settle = r.sessions.trusted_elsewhere.settle

        async def settle_late() -> None:
            if one.person.ids:
                await eventually(lambda: not one.session.permissions.trust_requests)
            await settle()

        monkeypatch.setattr(r.sessions.trusted_elsewhere, "settle", settle_late)
        turn = await one.prompt()
        await one.person.answer(await one.asked(), choice("allow_always"))
        assert (await over(turn)).state == "done"
        assert [each.restricted for each in one.options] == [False]
