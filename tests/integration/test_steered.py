"""Prompts that go into the running turn, in the journal and the queue; the worker says what it does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Interrupt
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import Conflict, WorkerFailed
from pykoclaw_acp.model.events import Text, UserMessage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.turns import Turn, TurnState
from pykoclaw_acp.sessions import contents
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import steering
from pykoclaw_acp.trust.content import Content
from tests.integration import asking
from tests.integration.rig import TIMES, Rig, hanging, rig, take_up, unreadable
from tests.waiting import eventually, not_within, pass_loop_time, within


async def steered(session: Session, text: str, *before: dict[str, Any]) -> Turn:
    content = [*before, {"type": "text", "text": text}]
    turn = Turn(str(uuid4()), session.id, content, steers=True)
    await session.submit(turn)
    return turn


async def said(r: Rig, session: Session) -> list[Any]:
    log = await r.journal.read(session.id, 0, 1000)
    return [one.event.content["text"] for one in log if isinstance(one.event, UserMessage)]


async def test_prompt_taken_up_ends_with_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        waiting = await r.prompt(session, "say 1")
        turn = await steered(session, "Look out.")
        assert [one.turn_id for one in worker.got if isinstance(one, Steer)] == [turn.turn_id]
        assert (await r.states())[turn.turn_id] == "dispatched"
        assert await said(r, session) == ["hang"]
        take_up(worker, turn, host)
        worker.say(worker.ended(host.turn_id), worker.ended(turn.turn_id))
        assert (await turn.ended)[0].state == (await host.ended)[0].state == TurnState.DONE
        assert steering.result(turn) == steering.INJECTED
        assert (await waiting.ended)[0].state == TurnState.DONE
        assert await said(r, session) == ["hang", "Look out.", "say 1"]


async def test_prompt_waits_until_claude_has_begun_turn(tmp_path: Path) -> None:
    """Before, the CLI makes one entry of both in its transcript, under the id of the second."""
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        worker = r.launcher.launched[0]
        worker.deaf = True
        host = await r.prompt(session, "hang")
        await eventually(lambda: host.state == TurnState.DISPATCHED)
        waiting = await steered(session, "Too early.")
        worker.say(worker.started(host.turn_id))
        await eventually(lambda: host.taken_up)
        turn = await steered(session, "Look out.")
        assert [one.turn_id for one in worker.got if isinstance(one, Steer)] == [turn.turn_id]
        assert waiting.state == TurnState.QUEUED


async def test_prompt_not_taken_up_runs_before_waiting_ones(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        waiting = await r.prompt(session, "say 1")
        turn = await steered(session, "Look out.")
        worker.say(worker.ended(host.turn_id))
        await host.over()
        assert session.busy
        assert worker.prompts == ["hang"], "the worker goes on with the steered one"
        worker.say(worker.started(turn.turn_id), worker.ended(turn.turn_id))
        assert (await turn.ended)[0].state == TurnState.DONE
        assert steering.result(turn) == steering.WAITED
        await waiting.over()
        assert worker.prompts == ["hang", "say 1"]


async def test_missing_login_costs_no_other_turn(tmp_path: Path) -> None:
    """The worker ends when the last turn that it was given has; the next one reads the login."""
    missing = TurnFailure(ErrorKind.AUTHENTICATION_MISSING, "Log in.")
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        own = worker.started("own", background=True)
        worker.say(own, replace(worker.ended("own"), stop_reason=None, error=missing))
        turn = await steered(session, "Look out.")
        await eventually(lambda: worker.acked == worker.last)
        assert r.pool.is_live(session.id)
        worker.say(replace(worker.ended(host.turn_id), stop_reason=None, error=missing))
        assert (await host.ended)[0].failure == missing
        worker.say(replace(worker.ended(turn.turn_id), stop_reason=None, error=missing))
        assert (await turn.ended)[0].failure == missing
        assert not r.pool.is_live(session.id)
        assert (await r.run(session, "say 1")).state == TurnState.DONE


@pytest.mark.parametrize("goes_on", ["steered", "own"])
async def test_worker_without_login_gets_no_prompt(tmp_path: Path, goes_on: str) -> None:
    """What it goes on with does not fail for want of the login: a prompt that the user cancels, or
    a turn that Claude began by itself.
    """
    missing = TurnFailure(ErrorKind.AUTHENTICATION_MISSING, "Log in.")
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        turn: Turn | None = None
        if goes_on == "own":
            worker.begin_own("own")
        else:
            turn = await steered(session, "Look out.")
        worker.say(replace(worker.ended(host.turn_id), stop_reason=None, error=missing))
        assert (await host.ended)[0].failure == missing
        await eventually(lambda: worker.acked == worker.last)
        assert r.pool.is_live(session.id)
        later = await r.prompt(session, "say 1")
        if turn is None:
            await not_within(later.ended.done)
            worker.say(worker.ended("own"))
        else:
            session.cancel(turn)
            assert (await turn.ended)[0].state == TurnState.CANCELLED
        assert (await later.ended)[0].state == TurnState.DONE
        assert worker.prompts == ["hang"], "the next worker reads what a login has written"


async def test_dead_worker_leaves_untaken_prompts_unknown(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        taken, untaken = await steered(session, "Taken."), await steered(session, "Untaken.")
        take_up(worker, taken, host)
        worker.kill()
        assert (await untaken.ended)[0].state == TurnState.UNKNOWN
        assert (await taken.ended)[0].state == TurnState.FAILED
        await host.over()
        assert await said(r, session) == ["hang", "Taken.", "Untaken."]
        assert (await r.run(session, "say 1")).state == TurnState.DONE


async def test_commands_and_prompts_for_idle_session_wait(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        linked = {"type": "resource_link", "uri": "file:///a", "name": "a"}
        commands = [
            await steered(session, "/compact"),
            await steered(session, "/review it", linked),
        ]
        assert not [one for one in worker.got if isinstance(one, Steer)]
        into = await steered(session, "Look at /etc.", linked)
        assert [one for one in worker.got if isinstance(one, Steer)]
        take_up(worker, into, host)
        for command in commands:
            session.cancel(command)
        worker.say(worker.ended(host.turn_id), worker.ended(into.turn_id))
        await host.over()
        await session.idle()
        again = await steered(session, "say 1")
        assert (await again.ended)[0].state == TurnState.DONE
        assert steering.result(again) == steering.NEW


class ShortOfDescriptors:
    """Directories that cannot be looked at while `short`."""

    short = False

    async def look(self, cwd: str, directories: object, sources: object) -> Content:
        if self.short:
            raise WorkerFailed(ErrorKind.OUT_OF_DESCRIPTORS, "Too many open files.")
        return Content()

    async def unchanged(self, content: Content) -> bool:
        return not self.short


async def test_prompt_waits_when_directory_cannot_be_seen(tmp_path: Path) -> None:
    """It is in the journal: an error would have its user send it a second time."""
    places = ShortOfDescriptors()
    async with rig(tmp_path, workspaces=places) as r:
        session, host, worker = await hanging(r)
        places.short = True
        turn = await steered(session, "say 1")
        assert turn in session.turns
        places.short = False
        worker.say(worker.ended(host.turn_id))
        assert (await asyncio.wait_for(turn.ended, 10))[0].state == TurnState.DONE
        assert worker.prompts == ["hang", "say 1"]


async def test_prompt_whose_dispatch_fails_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn that it was for has ended meanwhile."""
    fails = asyncio.Event()

    async def dispatch(*_: object) -> list[int]:
        await fails.wait()
        raise Conflict("as when another program has changed its row")

    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        with monkeypatch.context() as patch:
            patch.setattr(r.journal, "dispatch", dispatch)
            giving = asyncio.create_task(steered(session, "Look out."))
            worker.say(worker.ended(host.turn_id))
            await host.over()
            await eventually(lambda: host not in session.turns and session.turns)
            fails.set()
            turn = await giving
        assert (await asyncio.wait_for(turn.ended, 10))[0].state == TurnState.FAILED
        assert await said(r, session) == ["hang", "Look out."]
        assert (await r.run(session, "say 1")).state == TurnState.DONE


async def test_prompt_stored_at_stop_waits_for_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server sends it: the worker, which this one has let go, lives."""
    store_works = asyncio.Event()

    async with rig(tmp_path) as r:
        dispatch = r.journal.dispatch

        async def late(*arguments: Any) -> list[int]:
            await store_works.wait()
            return await dispatch(*arguments)

        session, _, _ = await hanging(r)
        monkeypatch.setattr(r.journal, "dispatch", late)
        giving = asyncio.create_task(steered(session, "Look out."))
        await eventually(lambda: len(session.turns) == 2)
        await session.suspend()
        await r.pool.detach()
        store_works.set()
        turn = await giving
        assert (await r.states())[turn.turn_id] == "dispatched"
        assert not turn.ended.done()


async def test_steered_prompt_that_cannot_be_read_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        with monkeypatch.context() as patch:
            patch.setattr(contents, "whole", unreadable)
            turn = await steered(session, "Look out.")
        assert (await asyncio.wait_for(turn.ended, 10))[0].state == TurnState.FAILED
        assert await said(r, session) == ["hang", "Look out."]
        worker.say(worker.ended(host.turn_id))
        assert (await host.ended)[0].state == TurnState.DONE
        assert (await r.run(session, "say 1")).state == TurnState.DONE


async def test_cancel_does_not_overtake_a_steered_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its images are read from the disk before it leaves."""
    reads, is_read = asyncio.Event(), asyncio.Event()

    async def read(_: object, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        reads.set()
        await is_read.wait()
        return blocks

    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        monkeypatch.setattr(contents, "whole", read)
        giving = asyncio.create_task(steered(session, "Look out."))
        await reads.wait()
        (turn,) = (one for one in session.turns if one is not host)
        (kept,) = session.cancel(turn)
        early = await within(kept.done, 0.1)
        is_read.set()
        await kept
        assert not early, "the next daemon would send the prompt"
        assert (await turn.ended)[0].state == TurnState.CANCELLED
        await giving
        assert not [one for one in worker.got if isinstance(one, Steer)]
        assert await said(r, session) == ["hang", "Look out."]
        assert not host.ended.done()


async def log(r: Rig, session: Session) -> list[str]:
    """The texts in the log, the user's and ours."""
    found = [one.event for one in await r.journal.read(session.id, 0, 1000)]
    mine = (one.content["text"] if isinstance(one, UserMessage) else one for one in found)
    return [
        one.text.strip() if isinstance(one, Text) else one
        for one in mine
        if isinstance(one, Text | str)
    ]


@pytest.mark.parametrize("stops", ["all", "the prompt"])
async def test_prompt_dropped_by_worker_is_logged(tmp_path: Path, stops: str) -> None:
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        turn = await steered(session, "Look out.")
        session.cancel(None if stops == "all" else turn)
        assert (await turn.ended)[0].state == TurnState.CANCELLED
        if stops == "the prompt":
            worker.say(worker.ended(host.turn_id))

        async def is_logged() -> Any:
            return "Look out." in await said(r, session)

        await eventually(is_logged)
        dropped = ["Look out.", "Cancelled before it was sent to Claude: “Look out.”"]
        before = ["hang", *(["Cancelled."] if stops == "all" else [])]
        assert await log(r, session) == [*before, *dropped]


async def test_prompt_dropped_by_parking_is_logged(tmp_path: Path) -> None:
    async with asking.rig(tmp_path, "park") as r:
        one = await asking.begin(r)
        turn = await steered(one.session, "Look out.")
        one.ask("q1")
        assert (await turn.ended)[0].state == TurnState.CANCELLED
        *_, last = await log(r, one.session)
        assert "“Look out.”" in last
        assert await said(r, one.session) == ["hang", "Look out."]


async def test_cancelled_prompt_costs_no_other_turn(tmp_path: Path) -> None:
    """Claude does not answer for a while."""
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        turn = await steered(session, "Look out.")
        worker.deaf = True
        session.cancel(turn)
        await eventually(lambda: any(isinstance(one, Interrupt) for one in worker.got))
        for _ in range(3):
            pass_loop_time(TIMES.cancel_grace + 0.1)
            await not_within(lambda: worker.dead, 0.2)
        worker.say(worker.ended(turn.turn_id, "cancelled"))
        assert (await turn.ended)[0].state == TurnState.CANCELLED
        worker.say(worker.ended(host.turn_id))
        assert (await host.ended)[0].state == TurnState.DONE


@pytest.mark.parametrize("goes_on", ["in it", "alone"])
async def test_cancelled_prompt_that_goes_on_is_killed(tmp_path: Path, goes_on: str) -> None:
    """Claude had it before it could be taken back, and does not stop."""
    async with rig(tmp_path) as r:
        session, host, worker = await hanging(r)
        turn = await steered(session, "Look out.")
        worker.deaf = True
        session.cancel(turn)
        if goes_on == "in it":
            take_up(worker, turn, host)
        else:
            worker.say(worker.ended(host.turn_id))
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == TurnState.CANCELLED
        assert worker.dead
        assert host.ended.done()
        assert (await r.run(session, "say 1")).state == TurnState.DONE
