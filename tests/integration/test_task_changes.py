"""Tasks that are cancelled or paused while a run of theirs waits, and requests that come again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.notes import NOT_SENT
from pykoclaw_acp.model.scheduled import CANCELLED, RunStanding
from pykoclaw_acp.protocol.control.tasks import RunTaskParams, TaskParams
from pykoclaw_acp.server.scheduled import ScheduledTasks
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.store import sessions
from pykoclaw_acp.store import task_requests as requests
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from pykoclaw_acp.store.units import Unit
from tests.integration.adopting import alive, daemon, found, killed, texts
from tests.integration.queueing import execute, fetch
from tests.integration.rig import Rig, rig
from tests.integration.scheduling import CALL, logs, row, scheduling, task
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["alive"]

STATES = "SELECT state, dispatched_at FROM acp_turns WHERE task_id IS NOT NULL"
UNENDED = "SELECT 1 FROM acp_task_runs WHERE ended_at IS NULL"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


def call(number: int) -> Any:
    """A request through a front, which sends it again to the next daemon."""
    return SimpleNamespace(key=f"front:{number}")


def control(r: Rig, runs: TaskRuns | None = None) -> tuple[ScheduledTasks, TaskRuns]:
    runs = runs or TaskRuns(r.sessions, SqlTaskStore(r.database), r.database.path.parent, 100)
    app: Any = SimpleNamespace(database=r.database, runs=runs)
    return ScheduledTasks(app), runs


@asynccontextmanager
async def watched(runs: TaskRuns) -> AsyncIterator[None]:
    watching = asyncio.create_task(runs.watch())
    try:
        yield
    finally:
        watching.cancel()


async def waiting(r: Rig, path: Path, tasks: ScheduledTasks, **fields: str) -> tuple[Session, str]:
    """A session with a turn that goes on, and a task whose run waits behind it."""
    session = await r.session()
    await r.prompt(session, "hang")
    await eventually(lambda: r.launcher.launched and r.launcher.launched[0].prompts)
    one = task(path, session.record.conversation_name, "say 3", next_run=None, **fields)
    await tasks.run(CALL, RunTaskParams(task=one))
    await eventually(lambda: len(session.turns) == 2)
    return session, one


async def never_began(r: Rig, path: Path, session: Session, one: str) -> None:
    """Everything says that the run was cancelled, and Claude was never given it."""
    await eventually(lambda: logs(path, one))
    assert logs(path, one) == [("error", None, CANCELLED)]
    assert fetch(path, STATES) == [("cancelled", None)]
    assert fetch(path, UNENDED) == []
    session.cancel()
    await session.idle()
    assert [prompt for one in r.launcher.launched for prompt in one.prompts] == ["hang"]

    async def told() -> list[str]:
        return [text for text in await texts(r, session) if NOT_SENT in text]

    said: list[str] = await eventually(told)
    assert said


async def test_cancelled_task_takes_its_waiting_run_along(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        tasks, _ = control(r)
        session, one = await waiting(r, path, tasks)
        done = await tasks.cancel(CALL, TaskParams(task=one))
        assert (done.run, done.session) == (RunStanding.CANCELLED, session.id)
        await never_began(r, path, session, one)


@pytest.mark.parametrize("looks", [True, False])
async def test_whoever_deletes_a_task_cancels_its_run(
    tmp_path: Path, path: Path, *, looks: bool
) -> None:
    async with rig(tmp_path) as r:
        tasks, runs = control(r)
        session, one = await waiting(r, path, tasks)
        execute(path, "DELETE FROM scheduled_tasks WHERE id = ?", one)
        if looks:
            async with watched(runs):
                runs.written.set()
                await never_began(r, path, session, one)
        else:  # its turn comes before anybody has looked
            session.cancel(session.turns[0])
            await never_began(r, path, session, one)


async def test_crash_after_deletion_leaves_no_run(
    tmp_path: Path, path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        tasks, runs = control(first)
        session, one = await waiting(first, path, tasks)
        runs.stop()
        ends = (*requests.delete(one), *requests.give_up_runs(one))
        await first.database.commit(Unit(ends))
    async with daemon(tmp_path, first) as second, scheduling(second):
        await never_began(second, path, await found(second, session), one)


async def test_run_that_is_no_turn_yet_ends_cancelled(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def ensure(*_: object) -> None:
        await never.wait()

    monkeypatch.setattr("pykoclaw_acp.sessions.task_runs.folders.ensure", ensure)
    async with rig(tmp_path) as r:
        tasks, runs = control(r)
        one = task(path, "daily", next_run=None)
        await tasks.run(CALL, RunTaskParams(task=one))
        done = await tasks.cancel(CALL, TaskParams(task=one))
        assert (done.run, done.session) == (RunStanding.CANCELLED, None)
        await eventually(lambda: not runs.running)
        assert logs(path, one) == [("error", None, CANCELLED)]
        assert fetch(path, UNENDED) == []


async def test_run_in_progress_outlives_its_task(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        tasks, _ = control(r)
        session = await r.session()
        one = task(path, session.record.conversation_name, "hang", next_run=None)
        await tasks.run(CALL, RunTaskParams(task=one))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].prompts)
        paused = await tasks.pause(CALL, TaskParams(task=one))
        assert (paused.run, paused.session) == (RunStanding.GOES_ON, session.id)
        done = await tasks.cancel(CALL, TaskParams(task=one))
        assert (done.run, done.session) == (RunStanding.GOES_ON, session.id)
        assert not session.turns[0].cancelled.is_set()


async def test_pause_leaves_a_waiting_run(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        tasks, runs = control(r)
        session, one = await waiting(r, path, tasks)
        paused = await tasks.pause(CALL, TaskParams(task=one))
        assert (paused.run, paused.session) == (RunStanding.WAITS, session.id)
        async with watched(runs):
            runs.written.set()
            session.cancel(session.turns[0])
            await eventually(lambda: logs(path, one))
        assert [state for state, _, _ in logs(path, one)] == ["success"]


# --- requests that come again


async def test_run_that_is_asked_again_ran_once(
    tmp_path: Path, path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        tasks, runs = control(first)
        one = RunTaskParams(task=task(path, "daily", next_run=None))
        started = await tasks.run(call(1), one)
        await eventually(lambda: logs(path, one.task))
        runs.stop()
    async with daemon(tmp_path, first) as second:
        tasks, _ = control(second)
        assert await tasks.run(call(1), one) == started
        await tasks.cancel(call(2), one)
        assert await tasks.run(call(1), one) == started
        assert len(fetch(path, STATES)) == 1


async def test_requests_are_known_after_clock_was_set(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was eight days slow, as without a battery; then the network's time came."""
    now = sessions.now_ms
    async with rig(tmp_path) as r:
        tasks, _ = control(r)
        one, other = (RunTaskParams(task=task(path, name, next_run=None)) for name in ("a", "b"))
        monkeypatch.setattr(requests, "now_ms", lambda: now() - 8 * 86_400_000)
        started = await tasks.run(call(1), one)
        await eventually(lambda: logs(path, one.task))
        monkeypatch.undo()
        await tasks.pause(call(2), other)
        assert await tasks.run(call(1), one) == started
        assert len(fetch(path, STATES)) == 1


def later(r: Rig, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = r.database.clock.now
    monkeypatch.setattr(r.database.clock, "now", lambda: now() + days * 86_400_000)


async def test_what_was_done_is_forgotten_after_a_week(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        tasks, _ = control(r)
        one = TaskParams(task=task(path, "a", next_run=None))
        await tasks.pause(call(1), one)
        later(r, 6, monkeypatch)
        await tasks.pause(call(2), one)
        assert (await tasks.pause(call(1), one)).changed, "it was not paused before"
        later(r, 2, monkeypatch)
        await tasks.pause(call(3), one)
        assert not (await tasks.pause(call(1), one)).changed


async def test_run_asked_again_while_it_goes_on(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        tasks, _ = control(r)
        one = RunTaskParams(task=task(path, "daily", "hang", next_run=None))
        both = await asyncio.gather(*(tasks.run(call(1), one) for _ in range(2)))
        assert both[0] == both[1]


async def test_changes_asked_again_answer_the_same(
    tmp_path: Path, path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        tasks, runs = control(first)
        often = {"schedule_type": "interval", "schedule_value": "3600000"}
        _, one = await waiting(first, path, tasks, **often)
        asked = TaskParams(task=one)
        paused = await tasks.pause(call(1), asked)
        assert not (await tasks.pause(call(2), asked)).changed
        await tasks.resume(call(3), asked)
        runs.stop()
    async with daemon(tmp_path, first) as second:
        tasks, _ = control(second)
        assert (await tasks.pause(call(1), asked)).changed == paused.changed
        assert row(path, one, "status") == ("active",), "resumed since"
        assert (await tasks.resume(call(3), asked)).status == "active"
        done = await tasks.cancel(call(4), asked)
        assert done.run == RunStanding.CANCELLED
    async with daemon(tmp_path) as third:
        tasks, _ = control(third)
        assert await tasks.cancel(call(4), asked) == done
        with pytest.raises(InvalidParams):
            await tasks.cancel(call(5), asked)
