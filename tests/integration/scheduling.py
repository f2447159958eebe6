"""Scheduled tasks on workers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import croniter
import pytest

from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.sessions.scheduler import Scheduler
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.store.changes import Changes
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from tests.integration.queueing import execute, fetch
from tests.integration.rig import Rig

CALL: Any = SimpleNamespace(key=None)  # of a command, which sends nothing again
PAST = "2026-01-01T00:00:00+00:00"


def task(path: Path, conversation: str, prompt: str = "say 2", **fields: Any) -> str:
    """A task that is due, unless said otherwise."""
    row = {
        "id": f"{len(fetch(path, 'SELECT 1 FROM scheduled_tasks')):08x}",
        "conversation": conversation, "prompt": prompt, "schedule_type": "once", "schedule_value": PAST,
        "context_mode": "group", "target_conversation": None, "next_run": PAST, "status": "active",
        "created_at": now_text(), **fields,
    }  # fmt: skip
    names, places = ", ".join(row), ", ".join("?" * len(row))
    execute(path, f"INSERT INTO scheduled_tasks ({names}) VALUES ({places})", *row.values())
    return str(row["id"])


def row(path: Path, task_id: str, *columns: str) -> tuple[Any, ...]:
    (found,) = fetch(
        path, f"SELECT {', '.join(columns)} FROM scheduled_tasks WHERE id = ?", task_id
    )
    return found


def logs(path: Path, task_id: str) -> list[tuple[Any, ...]]:
    return fetch(path, "SELECT status, result, error FROM task_run_logs WHERE task_id = ?", task_id)


def nobody() -> int | None:
    """There is no other scheduler."""
    return None


def blocked_by_cron(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each look at a cron expression from now on, whether an event loop was blocked by it."""
    found: list[bool] = []

    class Slow(croniter.croniter):  # type: ignore[misc]  # it has no types
        def __init__(self, *given: Any) -> None:
            found.append(asyncio._get_running_loop() is not None)  # noqa: SLF001  raises nothing
            super().__init__(*given)

    monkeypatch.setattr(croniter, "croniter", Slow)
    return found


@asynccontextmanager
async def scheduling(
    r: Rig, find_other: Callable[[], int | None] = nobody, workers: int = 100
) -> AsyncIterator[Scheduler]:
    store = SqlTaskStore(r.database)
    runs = TaskRuns(r.sessions, store, r.database.path.parent, workers)
    changes = Changes(r.database.path)
    for told in (runs.changed, runs.written):
        changes.tell(told)
    scheduler = Scheduler(store, runs, find_other)
    await runs.recover()
    work = (changes.run(), runs.watch(), scheduler.run())
    running = [asyncio.create_task(one) for one in work]
    try:
        yield scheduler
    finally:
        for one in running:
            one.cancel()
        runs.stop()
        await asyncio.gather(*running, return_exceptions=True)
