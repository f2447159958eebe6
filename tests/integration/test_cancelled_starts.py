"""A prompt is cancelled while its worker starts, which the next prompt then has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.choosing import SetMode
from pykoclaw_acp.channel.frames import EventFrame, Prompt, Stop
from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.model.events import ModeChanged
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.sessions.session import Session
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Client, Rig, hanging, rig
from tests.waiting import eventually

KEY = "ANTHROPIC_API_KEY"


async def cancelled_start(r: Rig, session: Session) -> MemoryChannel:
    """The worker of a prompt that was cancelled before Claude was ready, and which is not yet."""
    r.launcher.slow = True
    turn = await r.prompt(session, "say 1")
    await eventually(lambda: r.launcher.launched)
    r.launcher.slow = False
    session.cancel()
    assert (await turn.ended)[0].state == TurnState.CANCELLED
    return r.launcher.launched[-1]


async def become_ready(r: Rig, worker: MemoryChannel) -> None:
    worker.ready()
    await eventually(lambda: r.pool.takes_blocks(worker.spec.session_id))


def modes(worker: MemoryChannel) -> list[Any]:
    """What the worker was told of modes and prompts, in order."""
    told = [one for one in worker.got if isinstance(one, SetMode | Prompt)]
    return [one.mode if isinstance(one, SetMode) else "prompt" for one in told]


@pytest.mark.parametrize("ready", ["before", "after"])
async def test_choice_after_cancelled_start_reaches_claude(tmp_path: Path, ready: str) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        worker = await cancelled_start(r, session)
        if ready == "before":
            await become_ready(r, worker)
        await session.choosing.choose("modeId", mode="plan")
        if ready == "after":
            await become_ready(r, worker)
        assert (await r.run(session, "say 1")).state == TurnState.DONE
        assert r.launcher.launched == [worker]
        assert modes(worker) == ["plan", "prompt"]


@pytest.mark.parametrize("ready", [True, False])
async def test_cancelled_start_serves_no_other_key(tmp_path: Path, ready: bool) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        for key in ("one", "another"):
            subscription = session.subscribe(Client(), 0)
            subscription.given = ClientEnvironment(variables={KEY: key})
            session.environment.open(subscription.given)
            if key == "one":
                worker = await cancelled_start(r, session)
                if ready:
                    await become_ready(r, worker)
                subscription.close()
        assert (await r.run(session, "say 1")).state == TurnState.DONE
        ran = [one for one in r.launcher.launched if one.prompts]
        assert [one.spec.options.environment for one in ran] == [{KEY: "another"}]


async def test_choice_against_claudes_own_reaches_it(tmp_path: Path) -> None:
    """What the worker was launched with is not what it runs with by now."""
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        (worker,) = r.launcher.launched
        launched_with = worker.spec.options.permission_mode
        worker.last += 1
        worker.say(EventFrame(epoch=1, n=worker.last, turn_id=None, event=ModeChanged("plan")))
        await eventually(lambda: session.options.permission_mode == "plan")
        await session.choosing.choose("modeId", mode=launched_with)
        assert modes(worker) == ["prompt", launched_with]


async def test_choice_given_up_while_recorded_reaches_claude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was cancelled: what the log shows by then is what Claude runs with, at once."""
    async with rig(tmp_path) as r:
        session, _, worker = await hanging(r)
        records, recorded = asyncio.Event(), asyncio.Event()
        append = r.journal.append

        async def slow(*arguments: Any, **more: Any) -> list[int]:
            seqs = await append(*arguments, **more)
            records.set()
            await recorded.wait()
            return seqs

        monkeypatch.setattr(r.journal, "append", slow)
        choosing = asyncio.create_task(session.choosing.choose("modeId", mode="plan"))
        await records.wait()
        choosing.cancel()
        await asyncio.wait([choosing])
        recorded.set()
        await eventually(lambda: modes(worker) == ["prompt", "plan"])
        assert session.options.permission_mode == "plan"


async def test_cancel_while_worker_is_replaced_hangs_nobody(tmp_path: Path) -> None:
    """One that does not obey is killed all the same."""
    async with rig(tmp_path, stop_grace=0.2, stall_timeout=300.0) as r:
        session = await r.session()
        await r.run(session, "say 1")
        (worker,) = r.launcher.launched
        worker.background(1)  # which is to outlast what follows, up to the next prompt
        await eventually(lambda: r.pool.works(session.id))
        await r.sessions.reopen(session, "/", (), (McpServer(name="s", command="true"),))
        worker.deaf = True
        turn = await r.prompt(session, "say 1")
        await eventually(lambda: any(isinstance(one, Stop) for one in worker.got))
        session.cancel()
        assert (await turn.ended)[0].state == TurnState.CANCELLED
        assert (await r.run(session, "say 2")).state == TurnState.DONE
        assert r.launcher.launched[-1].prompts == ["say 2"]
