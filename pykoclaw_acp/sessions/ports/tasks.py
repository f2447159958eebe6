"""Scheduled tasks, which other programs make, change and run as well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pykoclaw_acp.model.scheduled import Task, TaskResult, TaskRun
from pykoclaw_acp.sessions.ports.store import Store


class TaskStore(Store, Protocol):
    """Tasks, and the runs of this program: each is claimed once and has one result."""

    async def due(self, limit: int) -> list[Task]:
        """Tasks whose time has come and that this program does not run, the first due first."""

    async def next_due(self) -> str | None:
        """When the next task is due that is not due yet."""

    async def claim(self, run: TaskRun) -> None:
        """Take a run, durably, and write the next run that the claim names.

        Raises Conflict if the task is not as it was read, or runs.
        """

    async def refuse(self, task: Task, reason: str) -> None:
        """Pause a due task whose schedule cannot be read. Raises Conflict as `claim`."""

    async def place(self, run: TaskRun, turn_id: str) -> None:
        """Note where the run takes place, and as which turn; `turn_id` is the one noted before.
        Waits while the database cannot be written.
        """

    async def without_task(self, task_ids: Collection[str]) -> set[str]:
        """Return those of these ids that no task has any more: whoever deleted it."""

    async def unfinished(self) -> list[TaskRun]:
        """Runs without a result, in the order of their claims. One that cannot be read gets an error
        for its result.
        """

    async def session_of(self, conversation: str) -> str | None:
        """The session of a conversation, also a deleted one."""

    async def finish(self, run: TaskRun, result: TaskResult) -> None:
        """Write a run's result, enqueue its delivery and begin its conversation, unless that has
        been begun meanwhile, in one commit. Waits while the database cannot be written.

        Raises Conflict if it has one.
        """

    async def left_aside(self, run: TaskRun) -> list[str]:
        """Sessions of earlier runs of the task aside, which nobody needs any more."""

    async def claude_sessions_aside(self, session_id: str) -> set[str]:
        """Claude sessions of a deleted run aside that no other session needs."""

    async def discard_aside(self, session_id: str) -> None:
        """Delete what a deleted run aside has left, unless others know its conversation. Waits
        while the database cannot be written.
        """

    async def forget_earlier(self, run: TaskRun) -> None:
        """Delete what is kept of the task's earlier runs. Waits while the database cannot be
        written.
        """

    async def outlived(self) -> list[tuple[str, str | None]]:
        """Turns of ended runs that no later one of their task follows, each with its session aside, if it
        has one: those of deleted tasks, unless a person has prompted there, and those of sessions that
        were deleted or emptied.
        """

    async def forget(self, turn_id: str) -> None:
        """Delete what is kept of a run. Waits while the database cannot be written."""
