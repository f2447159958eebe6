"""Workers that are started before a session's first prompt."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from pykoclaw_acp.channel.choosing import SetMode
from pykoclaw_acp.channel.frames import Prompt, Stop
from pykoclaw_acp.sessions import early_starts
from pykoclaw_acp.sessions.early_starts import MOST, EarlyStarts
from pykoclaw_acp.sessions.session import Session
from tests.integration.rig import Client, Rig, rig
from tests.integration.trusting import act, looking
from tests.waiting import eventually


async def begin(r: Rig, session: Session | None = None) -> Session:
    """A new session, and the start of its worker."""
    session = session or await r.session()
    session.subscribe(Client(), 0)
    if r.sessions.early is None:
        r.sessions.early = EarlyStarts(r.sessions.live, r.pool)
    r.sessions.early.begin(session)
    return session


async def started(r: Rig, session: Session) -> None:
    await eventually(lambda: r.pool.is_live(session.id) and r.pool.steers(session.id))


async def test_first_prompt_goes_to_the_worker_that_was_started_before(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        await started(r, session)
        assert (await r.run(session, "say 2")).state == "done"
        (worker,) = r.launcher.launched
        assert worker.prompts == ["say 2"]


async def test_prompt_in_the_midst_of_the_start_waits_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        assert (await r.run(session, "say 2")).state == "done"
        assert len(r.launcher.launched) == 1
        assert (await r.run(session, "say 2")).state == "done"
        assert len(r.launcher.launched) == 1


async def test_worker_without_a_prompt_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_starts, "UNUSED", 0.2)
    async with rig(tmp_path) as r:
        unused = await begin(r)
        used = await begin(r)
        assert (await r.run(used, "say 1")).state == "done"
        await eventually(lambda: not r.pool.is_live(unused.id))
        assert r.pool.is_live(used.id)
        assert (await r.run(unused, "say 1")).state == "done"


async def test_oldest_makes_room_for_the_next(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        sessions = [await begin(r) for _ in range(MOST + 2)]
        for session in sessions[2:]:
            await started(r, session)
        await eventually(lambda: not any(r.pool.is_live(one.id) for one in sessions[:2]))
        outcomes = await asyncio.gather(*(r.run(one, "say 1") for one in sessions))
        assert {one.state for one in outcomes} == {"done"}


async def test_no_other_worker_ends_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path, max_workers=1) as r:
        first = await r.session()
        assert (await r.run(first, "say 1")).state == "done"
        second = await begin(r)
        assert (await r.run(first, "say 1")).state == "done"
        assert len(r.launcher.launched) == 1
        assert (await r.run(second, "say 1")).state == "done"


async def test_mode_chosen_during_the_start_holds_for_the_first_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        await session.choosing.choose("modeId", mode="plan")
        assert (await r.run(session, "say 1")).state == "done"
        (worker,) = r.launcher.launched
        told = [one for one in worker.got if isinstance(one, SetMode | Prompt)]
        launched_so = worker.spec.options.permission_mode == "plan"
        assert launched_so or (isinstance(told[0], SetMode) and told[0].mode == "plan")
        assert isinstance(told[-1], Prompt)


async def test_nothing_starts_before_an_answer_about_the_directory(tmp_path: Path) -> None:
    acting, empty = tmp_path / "acting", tmp_path / "empty"
    for place in (acting, empty):
        place.mkdir()
    act(acting, "true")
    async with rig(tmp_path, **looking()) as r:
        await begin(r, await r.sessions.create(str(acting), (), ()))
        harmless = await begin(r, await r.sessions.create(str(empty), (), ()))
        await started(r, harmless)
        assert [one.spec.session_id for one in r.launcher.launched] == [harmless.id]


async def test_directory_that_is_another_one_at_the_prompt_gets_another_worker(
    tmp_path: Path,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    async with rig(tmp_path) as r:
        session = await begin(r, await r.sessions.create(str(place), (), ()))
        await started(r, session)
        place.rename(tmp_path / "before")
        place.mkdir()
        assert (await r.run(session, "say 1")).state == "done"
        first, second = r.launcher.launched
        assert (first.prompts, second.prompts) == ([], ["say 1"])
        assert any(isinstance(one, Stop) for one in first.got)
        shutil.rmtree(place)


async def test_daemon_that_leaves_in_the_midst_leaves_the_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        await eventually(lambda: r.launcher.launched)
        await session.suspend()
        await r.pool.detach()
        (worker,) = r.launcher.launched
        assert not worker.terminated
        assert not any(isinstance(one, Stop) for one in worker.got)
