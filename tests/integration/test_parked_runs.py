"""Runs of scheduled tasks whose permission requests are parked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.model.events import ToolEnded, ToolStarted
from pykoclaw_acp.model.scheduled import RunStanding
from pykoclaw_acp.protocol.control.tasks import RunTaskParams, TaskParams
from pykoclaw_acp.server.scheduled import ScheduledTasks
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.sessions.turns.outcomes import UNTOLD
from pykoclaw_acp.store.changes import Changes
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from tests.integration.asking import rig as asking_rig
from tests.integration.asking import running_in
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.queueing import execute, fetch
from tests.integration.rig import Rig
from tests.integration.scheduling import CALL, PAST, logs, row, scheduling, task
from tests.waiting import eventually, not_within, within

MODES = pytest.mark.parametrize("mode", ["group", "isolated"])
HOURLY = {"schedule_type": "interval", "schedule_value": "3600000"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


@asynccontextmanager
async def watched(r: Rig) -> AsyncIterator[ScheduledTasks]:
    """Commands, of a daemon that looks after each commit whether tasks were deleted."""
    runs = TaskRuns(r.sessions, SqlTaskStore(r.database), r.database.path.parent, 100)
    changes = Changes(r.database.path)
    changes.tell(runs.written)
    watching = [asyncio.create_task(one) for one in (changes.run(), runs.watch())]
    app: Any = SimpleNamespace(database=r.database, runs=runs)
    try:
        yield ScheduledTasks(app)
    finally:
        for one in watching:
            one.cancel()


def come_due(path: Path) -> None:
    execute(path, "UPDATE scheduled_tasks SET next_run = ?", PAST)


def has_run(path: Path, task_id: str, times: int) -> bool:
    return len(logs(path, task_id)) == times


async def parked(r: Rig, ask_id: str = "q1") -> Session:
    """The session in which a run asks, when its request is parked."""
    asking = await running_in(r)
    asking.ask(ask_id, call=ask_id)
    await eventually(lambda: asking.turn.ended.done() and asking.channel.dead)
    return asking.session


async def answered(r: Rig, session: Session, ask_id: str = "q1") -> MemoryChannel:
    """The worker that has been told the answer."""
    await r.sessions.requests.decide(ask_id, "allow_once", "a person")
    asking = await running_in(r)
    assert asking.session is session
    return asking.channel


async def answered_in_vain(r: Rig, session: Session) -> None:
    """No worker could be had that would have been told."""
    r.launcher.refuse = True
    await r.sessions.requests.decide("q1", "allow_once", "a person")
    await session.idle()
    r.launcher.refuse = False


async def say(session: Session, channel: MemoryChannel, text: str) -> None:
    """Let Claude end the running turn with these words."""
    turn = session.turns[0].turn_id
    channel.say(channel.event(turn, text), channel.ended(turn))


@MODES
async def test_run_lasts_until_parked_request_is_answered(
    tmp_path: Path, path: Path, mode: str
) -> None:
    async with asking_rig(tmp_path, "park") as r, scheduling(r):
        name = (await r.session()).record.conversation_name
        one = task(path, name, "hang", context_mode=mode, target_conversation="wa-1", **HOURLY)
        session = await parked(r)
        come_due(path)
        assert not await within(lambda: logs(path, one) or len(r.launcher.launched) > 1, 0.5)
        await say(session, await answered(r, session), "All done.")
        await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("success", "All done.", None)]
        assert row(path, one, "last_result") == ("All done.",)
        sent = "SELECT conversation, message FROM delivery_queue"
        assert fetch(path, sent) == [("wa-1", "All done.")]


async def test_run_parks_again_and_lasts(tmp_path: Path, path: Path) -> None:
    async with asking_rig(tmp_path, "park") as r, scheduling(r):
        one = task(path, (await r.session()).record.conversation_name, "hang")
        session = await parked(r)
        await r.sessions.requests.decide("q1", "allow_once", "a person")
        assert await parked(r, "q2") is session
        await say(session, await answered(r, session, "q2"), "At last.")
        await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("success", "At last.", None)]


async def test_parked_runs_leave_room_for_others(tmp_path: Path, path: Path) -> None:
    async with asking_rig(tmp_path, "park") as r, scheduling(r, workers=2):
        task(path, (await r.session()).record.conversation_name, "hang", context_mode="isolated")
        await parked(r)
        other = (await r.session()).record.conversation_name
        two = task(path, other, "say 2", context_mode="isolated")
        await eventually(lambda: logs(path, two))


@pytest.mark.parametrize("when", ["before", "after", "meanwhile"])
async def test_next_daemon_goes_on_with_parked_run(tmp_path: Path, path: Path, when: str) -> None:
    """`when` its request is answered."""
    async with asking_rig(tmp_path, "park") as r:
        async with scheduling(r):
            one = task(path, (await r.session()).record.conversation_name, "hang")
            session = await parked(r)
            if when == "before":
                channel = await answered(r, session)
        if when == "meanwhile":
            await say(session, await answered(r, session), "All done.")
            await session.idle()
        elif when == "after":
            r.sessions.live.remove(session.id)
        async with scheduling(r):
            if when == "after":
                await eventually(lambda: session.id in r.sessions.live)
                again = r.sessions.live[session.id]
                await say(again, await answered(r, again), "All done.")
            elif when == "before":
                await say(session, channel, "All done.")
            await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("success", "All done.", None)]
        prompts = [text for channel in r.launcher.launched for text in channel.prompts]
        assert prompts.count("hang") == 1


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_answer_reaches_run_of_deleted_task(tmp_path: Path, path: Path, when: str) -> None:
    """`when` the task is deleted: before the answer, or while that waits for a worker."""
    async with asking_rig(tmp_path, "park") as r, watched(r) as tasks:
        name = (await r.session()).record.conversation_name
        one = TaskParams(task=task(path, name, "hang", next_run=None))
        await tasks.run(CALL, RunTaskParams(task=one.task))
        session = await parked(r)
        done = await tasks.cancel(CALL, one) if when == "before" else None
        r.launcher.slow = True
        await r.sessions.requests.decide("q1", "allow_once", "a person")
        await eventually(lambda: len(r.launcher.launched) == 2)
        done = done or await tasks.cancel(CALL, one)
        assert (done.run, done.session) == (RunStanding.GOES_ON, session.id)
        await not_within(session.turns[0].cancelled.is_set)
        r.launcher.launched[-1].ready()
        await say(session, (await running_in(r)).channel, "All done.")
        await eventually(lambda: logs(path, one.task))
        assert logs(path, one.task) == [("success", "All done.", None)]


@pytest.mark.parametrize("daemon", ["this", "the next"])
async def test_run_whose_answer_was_not_told_ends(
    tmp_path: Path, path: Path, daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`daemon` finds that; the prompt of the run was sent before, and is not sent again."""
    monkeypatch.setattr(outcomes, "not_started", lambda turn, _: outcomes.not_begun(turn))
    async with asking_rig(tmp_path, "park") as r:
        async with scheduling(r):
            one = task(path, (await r.session()).record.conversation_name, "hang")
            session = await parked(r)
            if daemon == "this":
                await answered_in_vain(r, session)
                await eventually(lambda: logs(path, one))
        if daemon == "the next":
            await answered_in_vain(r, session)
            async with scheduling(r):
                await eventually(lambda: logs(path, one))
        ((state, _, error),) = logs(path, one)
        assert (state, UNTOLD in error, "Send it again" in error) == ("error", True, False)
        assert [text for channel in r.launcher.launched for text in channel.prompts] == ["hang"]


async def test_run_ends_with_its_parked_request(tmp_path: Path, path: Path) -> None:
    async with asking_rig(tmp_path, "park") as r, scheduling(r):
        one = task(path, (await r.session()).record.conversation_name, "hang")
        await r.sessions.delete(await parked(r))
        await eventually(lambda: logs(path, one))
        assert [(state, result) for state, result, _ in logs(path, one)] == [("error", None)]


async def test_run_says_what_its_background_work_asks(tmp_path: Path, path: Path) -> None:
    async with asking_rig(tmp_path, "park") as r, scheduling(r):
        one = task(path, (await r.session()).record.conversation_name, "hang")
        asking = await running_in(r)
        worker, turn = asking.channel, asking.turn.turn_id
        worker.background(1)
        worker.report(turn, ToolStarted("call", "Agent", "look", "think"))
        worker.say(worker.ended(turn))
        worker.report(None, ToolEnded("call", "completed", background=True))
        worker.begin_own("own", "call")
        asking.ask("q1", turn_id="own")
        await eventually(lambda: logs(path, one))
        ((state, _, error),) = logs(path, one)
        assert state == "error"
        assert "`pykoclaw-acp approve`" in error


async def test_run_lasts_until_its_subagent_is_answered(tmp_path: Path, path: Path) -> None:
    """It had asked when the turn of the run had ended."""
    async with asking_rig(tmp_path, "park") as r, scheduling(r):
        one = task(path, (await r.session()).record.conversation_name, "hang")
        asking = await running_in(r)
        worker, turn = asking.channel, asking.turn.turn_id
        worker.background(1)
        worker.report(turn, ToolStarted("call", "Agent", "look", "think"))
        worker.say(worker.ended(turn))
        asking.ask("q1")
        await eventually(
            lambda: fetch(path, "SELECT 1 FROM acp_permissions WHERE policy = 'parked'")
        )
        worker.report(None, ToolEnded("call", "failed", background=True))
        worker.background(0)
        await say(asking.session, await answered(r, asking.session), "All done.")
        await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("success", "All done.", None)]
        assert fetch(path, "SELECT 1 FROM acp_task_runs WHERE ended_at IS NULL") == []


@pytest.mark.parametrize("needed", ["asks", "runs"])
async def test_earlier_run_stays_while_it_is_needed(
    tmp_path: Path, path: Path, needed: str
) -> None:
    async with asking_rig(tmp_path, "park") as r, scheduling(r):
        name = (await r.session()).record.conversation_name
        one = task(path, name, "say 1", context_mode="isolated", **HOURLY)
        await eventually(lambda: logs(path, one))
        earlier = await r.sessions.get(r.launcher.launched[-1].spec.session_id)
        turn = await r.prompt(earlier, "hang", helper=True)
        asking = await running_in(r)
        if needed == "asks":
            earlier.subscriptions[0].close()
            await parked(r)
        for runs in (2, 3):
            come_due(path)
            await eventually(partial(has_run, path, one, runs))
            assert not await within(lambda: earlier.id not in r.sessions.live, 0.5)
        if needed == "asks":
            asking.channel = await answered(r, earlier)
        await say(earlier, asking.channel, "Yes.")
        await asyncio.wait([turn.ended])
        await earlier.idle()
        for client in list(earlier.subscriptions):
            client.close()
        come_due(path)
        await eventually(lambda: earlier.id not in r.sessions.live)
