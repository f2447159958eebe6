"""`_pykoclaw.dev/tasks/…` on tasks with megabytes that another program has written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from pykoclaw_acp.errors import InvalidParams, InvalidRequest
from pykoclaw_acp.link.framing import MAX_LINE_OUT
from pykoclaw_acp.model.schedule import compute_next_run
from pykoclaw_acp.protocol.control.tasks import SchedulerInfo, TaskParams, TasksParams
from pykoclaw_acp.server import scheduled
from pykoclaw_acp.server.scheduled import LISTED, ScheduledTasks
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.store import task_requests as requests
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from tests.integration.queueing import execute, fetch
from tests.integration.rig import Rig, rig
from tests.integration.scheduling import CALL, blocked_by_cron, row, task
from tests.waiting import eventually

LONG = 9_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


def control(r: Rig) -> ScheduledTasks:
    async def info() -> SchedulerInfo:
        return SchedulerInfo(state=cast("Any", "off"), other=None, running=0)

    runs = TaskRuns(r.sessions, SqlTaskStore(r.database), r.database.path.parent, 100)
    app: Any = SimpleNamespace(database=r.database, runs=runs, scheduler_info=info)
    return ScheduledTasks(app)


def fits(answer: object) -> bool:
    return len(msgspec.json.encode(answer)) < MAX_LINE_OUT - 1000


async def test_long_prompt_is_cut_in_lists(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        task(path, "wa-1", "ä" * LONG, last_result="y" * LONG, schedule_value="z" * LONG)
        task(path, "wa-2", "hello")
        listed = await control(r).list(CALL, TasksParams())
        short, long = sorted(listed.tasks, key=lambda one: len(one.prompt))
        assert (short.prompt, short.cut) == ("hello", {})
        assert set(long.prompt) == {"ä"}
        assert long.cut == {"prompt": 2 * LONG, "lastResult": LONG, "scheduleValue": LONG}
        assert not listed.more


async def test_list_fits_however_many_are_long(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        task(path, "wa-1", "\x01" * LISTED, last_result="\x01" * LISTED, id="0")
        names = "conversation, prompt, schedule_type, schedule_value, last_result, created_at"
        execute(
            path,
            f"INSERT INTO scheduled_tasks (id, {names}) WITH n(n) AS"
            f" (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000) SELECT n, {names}"
            " FROM scheduled_tasks, n WHERE id = '0'",
        )
        listed = await control(r).list(CALL, TasksParams(limit=10_000))
        assert fits(listed)
        assert len(listed.tasks) == 3001
        assert listed.tasks[0].cut["prompt"] == LISTED


async def test_shown_task_says_what_is_cut(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = task(path, "wa-1", "x" * LONG)
        for _ in range(20):
            execute(
                path,
                "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status, result)"
                " VALUES (?, '2026', 1, 'success', ?)",
                *(one, "y" * 2_000_000),
            )
        details = await control(r).show(CALL, TaskParams(task=one))
        assert fits(details)
        assert details.task.cut == {"prompt": LONG}
        assert len(details.task.prompt) > 1_000_000
        assert len(details.runs) == 20
        assert details.runs[0].cut == {"result": 2_000_000}


async def test_task_that_fits_is_shown_whole(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = task(path, "wa-1", "x" * 5_000_000)
        details = await control(r).show(CALL, TaskParams(task=one))
        assert details.task.prompt == "x" * 5_000_000
        assert details.task.cut == {}


async def test_second_pause_changes_nothing(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = TaskParams(task=task(path, "wa-1"))
        paused = [await control(r).pause(CALL, one) for _ in range(2)]
        assert [(done.status, done.changed) for done in paused] == [
            ("paused", True),
            ("paused", False),
        ]


async def test_resume_of_cron_task_holds_up_no_client(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = blocked_by_cron(monkeypatch)
    async with rig(tmp_path) as r:
        daily = {"schedule_type": "cron", "schedule_value": "0 9 * * *"}
        one = task(path, "wa-1", status="paused", **daily)
        resumed = await control(r).resume(CALL, TaskParams(task=one))
        assert (resumed.next_run or "").endswith("T09:00:00+00:00")
    assert blocked == [False]


async def test_second_resume_changes_nothing(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        often = {"schedule_type": "interval", "schedule_value": "3600000"}
        one = task(path, "wa-1", status="paused", **often)
        resumed = [await control(r).resume(CALL, TaskParams(task=one)) for _ in range(2)]
        assert [done.changed for done in resumed] == [True, False]
        assert resumed[0].status == resumed[1].status == "active"
        assert resumed[0].next_run == resumed[1].next_run


async def test_task_that_ran_once_runs_never_again(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        ran = {"last_run": "2026-01-01T00:00:00+00:00", "schedule_type": "once"}
        over = task(path, "wa-1", status="completed", **ran)
        with pytest.raises(InvalidRequest, match="has run"):
            await control(r).pause(CALL, TaskParams(task=over))
        begun = task(path, "wa-1", status="paused", schedule_value="2026-01-01T00:00:00Z", **ran)
        with pytest.raises(InvalidRequest, match="tasks run"):
            await control(r).resume(CALL, TaskParams(task=begun))
        later = task(path, "wa-1", status="paused", schedule_value="2999-01-01T00:00:00Z", **ran)
        assert (await control(r).resume(CALL, TaskParams(task=later))).status == "active"
        assert row(path, begun, "status") == ("paused",)
        assert row(path, over, "status") == ("completed",)


RAN = "last_run = '2026-01-01T00:00:09+00:00'"


@pytest.mark.parametrize("ran", [RAN, f"{RAN}, next_run = NULL, status = 'completed'"])
async def test_resume_as_task_ends_runs_nothing_twice(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, ran: str
) -> None:
    computing, computed = Event(), Event()

    def slow(schedule_type: str, schedule_value: str) -> str | None:
        computing.set()
        assert computed.wait(60)
        return compute_next_run(schedule_type, schedule_value)

    monkeypatch.setattr(scheduled, "compute_next_run", slow)
    async with rig(tmp_path) as r:
        one = task(path, "wa-1", status="paused")
        resuming = asyncio.create_task(control(r).resume(CALL, TaskParams(task=one)))
        await eventually(computing.is_set)
        execute(path, f"UPDATE scheduled_tasks SET {ran} WHERE id = ?", one)
        before = row(path, one, "status", "next_run", "last_run")
        computed.set()
        with pytest.raises(InvalidRequest, match="nothing was changed"):
            await resuming
        assert row(path, one, "status", "next_run", "last_run") == before


async def test_pause_as_task_ends_changes_nothing(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of = requests.run_of

    async def late(database: Database, task_id: str) -> str | None:
        execute(path, f"UPDATE scheduled_tasks SET {RAN}, status = 'completed'")
        return await run_of(database, task_id)

    monkeypatch.setattr(requests, "run_of", late)
    async with rig(tmp_path) as r:
        one = task(path, "wa-1")
        with pytest.raises(InvalidRequest, match="has run"):
            await control(r).pause(CALL, TaskParams(task=one))
        assert row(path, one, "status") == ("completed",)


async def test_long_task_is_paused_resumed_and_cancelled(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        one = task(path, "wa-1", "x" * LONG)
        tasks = control(r)
        for act, state in ((tasks.pause, "paused"), (tasks.resume, "active")):
            answer = await act(CALL, TaskParams(task=one))
            assert fits(answer)
            assert (answer.id, answer.status) == (one, state)
            assert len(answer.prompt) <= LISTED
            assert row(path, one, "status", "length(prompt)") == (state, LONG)
        deleted = await tasks.cancel(CALL, TaskParams(task=one[:4]))
        assert deleted.task == one
        assert fetch(path, "SELECT 1 FROM scheduled_tasks") == []
        with pytest.raises(InvalidParams):
            await tasks.pause(CALL, TaskParams(task=one))
