"""Runs of scheduled tasks while the database fails, daemons die and others interfere."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import BLOCKED, note_event
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.protocol.control.tasks import RunTaskParams, TaskParams
from pykoclaw_acp.server.scheduled import ScheduledTasks
from pykoclaw_acp.sessions.left_runs import LeftRuns
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.sessions.turns import queue
from pykoclaw_acp.store import task_requests as requests
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from pykoclaw_acp.store.journal.turns import SqlTurnJournal
from pykoclaw_acp.store.units import Unit
from tests.integration.adopting import alive, daemon, killed
from tests.integration.queueing import execute, fetch
from tests.integration.rig import TIMES, Client, Rig, rig
from tests.integration.scheduling import CALL, logs, row, scheduling, task
from tests.waiting import eventually, within

__all__ = ["alive"]

TURNS = "SELECT turn_id, acp_session_id FROM acp_turns"
RUNS = "SELECT turn_id, acp_session_id FROM acp_task_runs"
BEGUN = "SELECT session_id FROM conversations WHERE name = 'wa-andy-1@g.us'"
NOT_STARTED = """{"kind": "not_started", "message": "It never left."}"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


class Failing(SqlTaskStore):
    """Cannot note a place at first."""

    failed = False

    async def place(self, run: TaskRun, turn_id: str) -> None:
        if not self.failed:
            self.failed = True
            raise StoreUnavailable("blocked", "The disk is full.")
        await super().place(run, turn_id)


async def begun(r: Rig, store: SqlTaskStore) -> TaskRuns:
    """A daemon's runs, with that of the due task."""
    runs = TaskRuns(r.sessions, store, r.database.path.parent, 100)
    (due,) = await store.due(1)
    await runs.begin(due, None)
    return runs


async def test_run_noted_late_ends_under_the_next_daemon(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = task(path, "daily", "say 3", context_mode="isolated")
        runs = await begun(r, Failing(r.database))
        await eventually(lambda: fetch(path, TURNS))
        runs.stop()
        assert fetch(path, RUNS) == fetch(path, TURNS)
        async with scheduling(r):
            await eventually(lambda: logs(path, one))
        assert [state for state, _, _ in logs(path, one)] == ["success"]
        assert len(fetch(path, TURNS)) == 1


async def ended(r: Rig, path: Path, state: str, error: str | None) -> TaskRun:
    """A run that a daemon has claimed which died, and its turn, which has ended."""
    session = await r.session()
    (due,) = await SqlTaskStore(r.database).due(1)
    run = TaskRun("first", due, None, manual=False, started_at=0, session_id=session.id)
    await SqlTaskStore(r.database).claim(run)
    execute(
        path,
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, request_key, task_id, state, error,"
        " created_at) VALUES (?, ?, 'client', '[]', ?, ?, ?, ?, 0)",
        *(run.turn_id, session.id, run.request_key, due.id, state, error),
    )
    return run


async def test_turn_noted_late_gives_the_run_its_result(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = task(path, "daily", "say 3")
        run = await ended(r, path, "failed", NOT_STARTED)
        await SqlTaskStore(r.database).place(run, run.turn_id)
        runs = TaskRuns(r.sessions, Failing(r.database), tmp_path, 100)
        await runs.recover()
        await eventually(lambda: logs(path, one))
        assert [state for state, _, _ in logs(path, one)] == ["success"]
        assert fetch(path, RUNS)[0] == fetch(path, TURNS)[1]


async def test_run_of_an_earlier_version_finds_its_session(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = task(path, "daily", context_mode="isolated")
        await ended(r, path, "done", None)
        async with scheduling(r):
            await eventually(lambda: logs(path, one))
        assert [state for state, _, _ in logs(path, one)] == ["success"]
        assert not r.launcher.launched


async def test_unreadable_run_ends_and_lets_others_go_on(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        hourly = {"schedule_type": "interval", "schedule_value": "3600000", "next_run": "2999"}
        cut, odd = (task(path, "daily", **hourly) for _ in range(2))
        once = task(path, "daily", next_run=None)
        for number, (one, kept) in enumerate(
            {cut: """'{"id":'""", odd: "CAST(x'ff' AS TEXT)", once: "''"}.items()
        ):
            execute(
                path,
                "INSERT INTO acp_task_runs (turn_id, task_id, task, manual, claimed_next_run, started_at)"
                f" VALUES (?, ?, {kept}, 0, (SELECT next_run FROM scheduled_tasks WHERE id = ?), 1)",
                *(str(number), one, one),
            )
        due = task(path, "daily", "say 1")
        async with scheduling(r):
            await eventually(lambda: logs(path, due))
        assert logs(path, due)[0][0] == "success"
        for one in (cut, odd, once):
            ((state, _, error),) = logs(path, one)
            assert (state, "cannot be read" in error) == ("error", True)
        assert row(path, cut, "next_run", "status") == ("2999", "active")
        assert row(path, once, "next_run", "status") == (None, "completed")


# --- a conversation that nobody had begun before the run


@pytest.mark.parametrize("by", ["another program", "a client"])
async def test_conversation_begun_during_its_tasks_run_is_kept(
    tmp_path: Path, path: Path, by: str
) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        one = task(path, "wa-andy-1@g.us", "hang")
        await eventually(lambda: fetch(path, "SELECT 1 FROM acp_turns WHERE state = 'running'"))
        if by == "a client":
            await r.sessions.of_name("wa-andy-1@g.us", create=True)
        else:
            execute(
                path,
                "INSERT INTO conversations (name, session_id, cwd, created_at)"
                " VALUES ('wa-andy-1@g.us', 'theirs', '/', '2026')",
            )
        known = fetch(path, BEGUN)
        (turn,) = [turn for session in r.sessions.live.values() for turn in session.turns]
        (await r.sessions.get(turn.session_id)).cancel()
        await eventually(lambda: logs(path, one))
        assert not await within(lambda: fetch(path, BEGUN) != known, 0.5)


@pytest.mark.parametrize(("part", "dies_at"), [(SqlTurnJournal, "work"), (LeftRuns, "tidy_before")])
async def test_conversation_continues_from_task_after_crash(
    tmp_path: Path, path: Path, part: type, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> NoReturn:
        raise StoreClosed

    async with rig(tmp_path) as r:
        one = task(path, "wa-andy-1@g.us")
        with monkeypatch.context() as patch:
            patch.setattr(part, dies_at, lost)
            runs = await begun(r, SqlTaskStore(r.database))
            await eventually(lambda: not runs.running)
    async with rig(tmp_path) as r, scheduling(r):
        await eventually(lambda: logs(path, one))
        ((_, ran_in),) = fetch(path, TURNS)
        assert fetch(path, BEGUN) == [(ran_in,)]


# --- tasks and conversations that are deleted while a run begins


async def test_refused_cancel_of_a_task_leaves_its_run(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = asyncio.Event()

    async def ensure(*_: object) -> None:
        await waits.wait()

    monkeypatch.setattr("pykoclaw_acp.sessions.task_runs.folders.ensure", ensure)
    async with rig(tmp_path) as r:
        one = task(path, "daily")
        runs = await begun(r, SqlTaskStore(r.database))
        await eventually(lambda: None not in fetch(path, RUNS)[0])
        control: Any = SimpleNamespace(database=r.database, runs=runs)
        r.database.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
        with pytest.raises(StoreUnavailable):
            await ScheduledTasks(control).cancel(CALL, TaskParams(task=one))
        waits.set()
        await eventually(lambda: logs(path, one))
        assert [state for state, _, _ in logs(path, one)] == ["success"]


async def test_conversation_deleted_as_its_run_begins_ends_that(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()

        async def ensure(*_: object) -> None:
            if r.sessions.live.get(session.id) is not None:
                await r.sessions.delete(session)

        monkeypatch.setattr("pykoclaw_acp.sessions.task_runs.folders.ensure", ensure)
        one = task(path, session.record.conversation_name)
        async with scheduling(r):
            await eventually(lambda: logs(path, one))
        ((state, _, error),) = logs(path, one)
        assert (state, error) == ("error", "The conversation was deleted before the run had ended.")
        assert await SqlTaskStore(r.database).unfinished() == []


@pytest.mark.parametrize("step", ["claim", "place"])
async def test_task_cancelled_at_its_start_never_runs(
    tmp_path: Path, path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = getattr(SqlTaskStore, step)

    async def cancelled(store: SqlTaskStore, *given: object) -> None:
        await act(store, *given)
        ends = (*requests.delete(one), *requests.give_up_runs(one))
        await r.database.commit(Unit(ends))

    monkeypatch.setattr(SqlTaskStore, step, cancelled)
    async with rig(tmp_path) as r:
        one = task(path, "daily")
        runs = await begun(r, SqlTaskStore(r.database))
        await eventually(lambda: not runs.running)
        assert fetch(path, TURNS) == []


async def test_next_run_is_cancelled_though_earlier_tidies_up(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidies, left_aside = asyncio.Event(), SqlTaskStore.left_aside

    async def slow(store: SqlTaskStore, run: TaskRun) -> list[str]:
        await tidies.wait()
        return await left_aside(store, run)

    monkeypatch.setattr(SqlTaskStore, "left_aside", slow)
    async with rig(tmp_path) as r:
        runs = TaskRuns(r.sessions, SqlTaskStore(r.database), tmp_path, 100)
        app: Any = SimpleNamespace(database=r.database, runs=runs)
        control, session = ScheduledTasks(app), await r.session()
        one = task(path, session.record.conversation_name, next_run=None)
        await control.run(CALL, RunTaskParams(task=one))
        await eventually(lambda: logs(path, one))
        await r.prompt(session, "hang")
        await control.run(CALL, RunTaskParams(task=one))
        await eventually(lambda: len(fetch(path, TURNS)) == 3)
        runs.changed.clear()
        tidies.set()
        await asyncio.wait_for(runs.changed.wait(), 30)
        assert len(runs.running) == 1
        await control.cancel(CALL, TaskParams(task=one))
        await eventually(lambda: not runs.running)
        states = fetch(path, "SELECT state FROM acp_turns ORDER BY position")
        assert [state for (state,) in states] == ["done", "running", "cancelled"]


# --- prompts that no session takes


async def test_prompt_too_long_ends_the_run(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_TEXT", 1000)
    async with rig(tmp_path) as r:
        long = [task(path, "wa-1", "x" * 1001, next_run=f"2026-01-0{n}") for n in range(1, 6)]
        often = task(path, "wa-1", "x" * 1001, schedule_type="interval", schedule_value="60000")
        short = task(path, "wa-2", next_run="2026-02-01")
        async with scheduling(r):
            await eventually(lambda: logs(path, short))
        for one in (*long, often):
            ((state, _, error),) = logs(path, one)
            assert state == "error"
            assert "1,001 characters" in error
            assert "Shorten it" in error
        assert row(path, long[0], "status") == ("completed",)
        assert row(path, often, "status") == ("active",)
        assert len(r.sessions.live.values()) == 1, "of the one that ran"


@pytest.mark.parametrize("placed", [True, False])
async def test_next_daemon_ends_run_of_long_prompt(
    tmp_path: Path, path: Path, placed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_TEXT", 1000)
    async with rig(tmp_path) as r:
        session = await r.session()
        one = task(path, session.record.conversation_name, "x" * 1001)
        (due,) = await SqlTaskStore(r.database).due(1)
        run = TaskRun("first", due, None, manual=False, started_at=0)
        await SqlTaskStore(r.database).claim(run)
        if placed:  # by a version that did not look at the prompt before
            run.session_id = session.id
            await SqlTaskStore(r.database).place(run, run.turn_id)
        async with scheduling(r):
            await eventually(lambda: logs(path, one))
        assert "1,001 characters" in logs(path, one)[0][2]
        assert await SqlTaskStore(r.database).unfinished() == []


async def test_failed_runs_leave_nothing_of_earlier_ones(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_TEXT", 1000)
    async with rig(tmp_path) as r:
        one = task(path, "wa-1", context_mode="isolated")
        async with scheduling(r):
            await eventually(lambda: logs(path, one))
            execute(
                path,
                "UPDATE scheduled_tasks SET status = 'active', next_run = '2026-01-01', prompt = ?",
                "x" * 1001,
            )
            await eventually(lambda: len(logs(path, one)) == 2)
            await eventually(lambda: len(fetch(path, RUNS)) == 1)
        assert fetch(path, RUNS)[0][1] is None
        assert not list(r.sessions.live.values())


# --- what runs leave


async def test_run_of_deleted_task_leaves_nothing(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        one = task(path, session.record.conversation_name, context_mode="isolated")
        await eventually(lambda: logs(path, one))
        left = LeftRuns(r.sessions, SqlTaskStore(r.database))
        await left.tidy()
        known = "SELECT name FROM conversations"
        assert (len(fetch(path, RUNS)), len(fetch(path, known))) == (1, 2)
        execute(path, "DELETE FROM scheduled_tasks")
        (followed,) = [one for one in r.sessions.live.values() if one.id != session.id]
        watching = followed.subscribe(Client(), 0)
        await left.tidy()
        assert len(fetch(path, RUNS)) == 1
        watching.close()
        await left.tidy()
        assert fetch(path, RUNS) == []
        assert fetch(path, known) == [(session.record.conversation_name,)]
        assert await r.sessions.find(followed.id) is None


# --- usage limits


async def test_adopted_run_that_limit_stops_ends(
    tmp_path: Path, path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        one = task(path, session.record.conversation_name, "hang")
        runs = await begun(first, SqlTaskStore(first.database))
        await eventually(lambda: first.launcher.launched and first.launcher.launched[0].acked)
        runs.stop()
    (channel,) = first.launcher.launched
    times = replace(TIMES, usage_limit="wait")
    async with daemon(tmp_path, first, times=times) as second, scheduling(second):
        ended = channel.ended(fetch(path, TURNS)[0][0])
        limit = TurnFailure(ErrorKind.USAGE_LIMIT, "Reached.", 429, resets_at=int(time.time()))
        channel.say(msgspec.structs.replace(ended, stop_reason=None, error=limit))
        await eventually(lambda: logs(path, one))
        assert [state for state, _, _ in logs(path, one)] == ["error"]
        assert fetch(path, "SELECT 1 FROM acp_limit_waits") == []


async def test_run_whose_prompt_hook_blocked_has_failed(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = task(path, "daily", "hang", context_mode="isolated")
        async with scheduling(r):
            await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
            ((turn, _),) = fetch(path, TURNS)
            worker = r.launcher.launched[-1]
            note = note_event(f"line-1{BLOCKED}", "**A hook blocked this**: no")
            worker.say(msgspec.structs.replace(worker.event(turn, ""), event=note))
            worker.say(worker.ended(turn))
            await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("error", None, "**A hook blocked this**: no")]
