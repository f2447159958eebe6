"""Scheduled tasks, over `store/tasks.py`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import structlog

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.scheduled import Task, TaskResult, TaskRun
from pykoclaw_acp.store import left_runs, runs_aside, shared_conversations, tasks
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit

_UNREADABLE: Final = (
    "What was stored of the run cannot be read. If it had begun, its session shows what it did."
)

log: Final = structlog.get_logger()


def unreadable_result(run: TaskRun) -> TaskResult:
    """How a run ends of which the task as it was claimed cannot be read."""
    return TaskResult("", _UNREADABLE, run.claimed, 0)


class SqlTaskStore(SqlStore):
    """Implements `sessions.ports.tasks.TaskStore`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._skipped: set[str] = set()  # tasks of which the log says so

    async def due(self, limit: int) -> list[Task]:
        """Tasks whose time has come and that this program does not run."""
        found, unreadable = await tasks.due(self._database, limit)
        for task_id in set(unreadable) - self._skipped:
            log.warning(
                "A task is skipped: its row has text that is not UTF-8",
                action="task_unreadable",
                task=task_id,
            )
        self._skipped.update(unreadable)
        return found

    async def next_due(self) -> str | None:
        """When the next task is due that is not due yet."""
        return await tasks.next_due(self._database)

    async def claim(self, run: TaskRun) -> None:
        """Take a run, durably, and write the next run that the claim names."""
        try:
            await self._commit(Unit(tasks.claim(run, self.clock.now()), durable=True))
        except RowRefused as error:
            raise Conflict(f"the task {run.task.id} runs") from error

    async def refuse(self, task: Task, reason: str) -> None:
        """Pause a due task whose schedule cannot be read."""
        await self._commit(Unit(tasks.refuse(task, reason)))

    async def place(self, run: TaskRun, turn_id: str) -> None:
        """Note where the run takes place, and as which turn."""
        await self._run(tasks.place(run, turn_id), patient=True)

    async def without_task(self, task_ids: Collection[str]) -> set[str]:
        """Return those of these ids that no task has any more: whoever deleted it."""
        return await tasks.without_task(self._database, task_ids)

    async def unfinished(self) -> list[TaskRun]:
        """Runs without a result, the oldest first."""
        found, unreadable = await tasks.unfinished(self._database)
        for run in unreadable:
            log.error("A run cannot be read", action="task_run_unreadable", task=run.task.id)
            await self.finish(run, unreadable_result(run))
        return found

    async def session_of(self, conversation: str) -> str | None:
        """The session of a conversation, also a deleted one."""
        owner = await shared_conversations.owner_of(self._database, conversation)
        return None if owner is None else owner.session_id

    async def finish(self, run: TaskRun, result: TaskResult) -> None:
        """Write a run's result, enqueue its delivery and begin its conversation, in one commit."""
        await self._commit(Unit(tasks.result(run, result), durable=True), patient=True)

    async def left_aside(self, run: TaskRun) -> list[str]:
        """Sessions of earlier runs of the task aside."""
        return await left_runs.left_aside(self._database, run)

    async def claude_sessions_aside(self, session_id: str) -> set[str]:
        """Claude sessions of a deleted run aside that no other session needs."""
        return await runs_aside.claude_sessions(self._database, session_id)

    async def discard_aside(self, session_id: str) -> None:
        """Delete what a deleted run aside has left."""
        await runs_aside.discard(self._database, session_id)

    async def forget_earlier(self, run: TaskRun) -> None:
        """Delete what is kept of the task's earlier runs."""
        await self._run(left_runs.forget_earlier(run), patient=True)

    async def outlived(self) -> list[tuple[str, str | None]]:
        """Turns and sessions aside of ended runs that no later one of their task follows."""
        return await left_runs.outlived(self._database)

    async def forget(self, turn_id: str) -> None:
        """Delete what is kept of a run."""
        await self._run(left_runs.forget(turn_id), patient=True)
