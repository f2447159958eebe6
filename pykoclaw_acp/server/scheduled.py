"""`_pykoclaw.dev/tasks/…`: scheduled tasks, for commands."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.errors import Conflict, InvalidParams, InvalidRequest
from pykoclaw_acp.model import deliveries
from pykoclaw_acp.model.schedule import compute_next_run
from pykoclaw_acp.model.scheduled import Task, TaskState
from pykoclaw_acp.protocol.control.tasks import (
    ScheduledTaskList,
    TaskDetails,
    TaskInfo,
    TaskParams,
    TaskRunInfo,
    TasksParams,
    TaskStarted,
)
from pykoclaw_acp.protocol.messages import Empty
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.store import tasks
from pykoclaw_acp.store.units import Statement, Unit

RUNS_SHOWN: Final = 20


class ScheduledTasks:
    """Lists, shows, changes and runs tasks; whoever else reads the table sees the changes."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._database = app.database

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods."""
        return {
            "_pykoclaw.dev/tasks/list": Method(
                TasksParams, self.list, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/tasks/show": Method(
                TaskParams, self.show, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/tasks/pause": Method(
                TaskParams, self.pause, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/tasks/resume": Method(
                TaskParams, self.resume, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/tasks/cancel": Method(
                TaskParams, self.cancel, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/tasks/run": Method(
                TaskParams, self.run, before_initialize=True, changes=True
            ),
        }

    async def list(self, call: Call, params: TasksParams) -> ScheduledTaskList:  # noqa: ARG002
        """Tasks, newest first."""
        found = await tasks.every(self._database, params.limit + 1)
        return ScheduledTaskList(
            tasks=[self._info(one) for one in found[: params.limit]],
            more=len(found) > params.limit,
            scheduler=await self._app.scheduler_info(),
        )

    async def show(self, call: Call, params: TaskParams) -> TaskDetails:  # noqa: ARG002
        """A task with its newest runs."""
        task = await self._task(params.task)
        runs = await tasks.logged(self._database, task.id, RUNS_SHOWN)
        return TaskDetails(
            task=self._info(task),
            runs=[
                TaskRunInfo(
                    run_at=at, duration_ms=duration, status=status, result=result, error=error
                )
                for at, duration, status, result, error in runs
            ],
        )

    async def pause(self, call: Call, params: TaskParams) -> TaskInfo:  # noqa: ARG002
        """Let the task not run until it is resumed; a run that has begun goes on."""
        task = await self._task(params.task)
        return await self._changed(task.id, tasks.set_state(task.id, TaskState.PAUSED))

    async def resume(self, call: Call, params: TaskParams) -> TaskInfo:  # noqa: ARG002
        """Let the task run by its schedule, counted from now; a time that has passed is due."""
        task = await self._task(params.task)
        if task.status != TaskState.PAUSED:
            raise InvalidRequest(f"The task is not paused but {task.status}: nothing was changed.")
        try:
            following = compute_next_run(task.schedule_type, task.schedule_value)
        except ValueError as error:
            raise InvalidParams(f"The task's schedule cannot be read: {error}") from error
        return await self._changed(task.id, tasks.set_state(task.id, TaskState.ACTIVE, following))

    async def cancel(self, call: Call, params: TaskParams) -> Empty:  # noqa: ARG002
        """Delete the task and what is kept of its runs. A run that has begun goes on, one that has
        not does not happen.
        """
        task = await self._task(params.task)
        ends = (*tasks.delete(task.id), tasks.give_up_runs(task.id))
        await self._database.commit(Unit(ends))
        self._app.runs.give_up(task.id)
        return Empty()

    async def run(self, call: Call, params: TaskParams) -> TaskStarted:  # noqa: ARG002
        """Run the task now, whatever its schedule and state; its schedule does not change."""
        task = await self._task(params.task)
        if not self._app.runs.room:
            raise InvalidRequest(
                "Too many tasks run at once. Try again when one of them has ended."
            )
        try:
            run = await self._app.runs.begin(task, task.next_run, manual=True)
        except Conflict as error:
            raise InvalidRequest("The task runs already, or was changed just now.") from error
        return TaskStarted(task=task.id, turn_id=run.turn_id)

    async def _changed(self, task_id: str, change: Statement) -> TaskInfo:
        await self._database.commit(Unit((change,)))
        self._app.runs.changed.set()
        return self._info(await self._task(task_id))

    async def _task(self, word: str) -> Task:
        found = await tasks.matching(self._database, word)
        if not found:
            raise InvalidParams("No task has this id. `pykoclaw-acp tasks list` shows all of them.")
        if len(found) > 1:
            raise InvalidParams(f"More than one task's id begins with {word}. Give more of it.")
        return found[0]

    def _info(self, task: Task) -> TaskInfo:
        to, _ = deliveries.target(task.conversation, task.target_conversation)
        return TaskInfo(
            id=task.id,
            conversation=task.conversation,
            prompt=task.prompt,
            schedule_type=task.schedule_type,
            schedule_value=task.schedule_value,
            context_mode=task.context_mode,
            target_conversation=task.target_conversation,
            delivers_to=to,
            next_run=task.next_run,
            last_run=task.last_run,
            last_result=task.last_result,
            status=task.status,
            created_at=task.created_at,
            running=any(run.task.id == task.id for run in self._app.runs.running),
        )
