"""`_pykoclaw.dev/tasks/…`: scheduled tasks, for commands."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from pykoclaw_acp import crash_points
from pykoclaw_acp.errors import Conflict, InvalidParams, InvalidRequest
from pykoclaw_acp.link.framing import MAX_LINE_OUT
from pykoclaw_acp.model import deliveries
from pykoclaw_acp.model.schedule import compute_next_run, now_text
from pykoclaw_acp.model.scheduled import CutTask, RunStanding, Task, TaskRun, TaskState
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.protocol.control.tasks import (
    RunTaskParams,
    ScheduledTaskList,
    TaskCancelled,
    TaskDetails,
    TaskInfo,
    TaskParams,
    TaskPaused,
    TaskResumed,
    TaskRunInfo,
    TasksParams,
    TaskStarted,
)
from pykoclaw_acp.server import fitting
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.command_client import given_by
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.store import task_requests as requests
from pykoclaw_acp.store import tasks
from pykoclaw_acp.store.task_requests import Noted
from pykoclaw_acp.store.units import Statement, Unit

RUNS_SHOWN: Final = 20
LISTED: Final = 1000  # bytes of each text in a list: ten thousand tasks fill no memory
BEGUN: Final = "The task runs once, and has begun to: nothing was changed."
GONE: Final = "No task has this id. `pykoclaw-acp tasks list` shows all of them."


class ScheduledTasks:
    """Lists, shows, changes and runs tasks; whoever else reads the table sees the changes."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._database = app.database
        self._changing = asyncio.Lock()  # a request that comes again waits for what it was

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
                RunTaskParams, self.run, before_initialize=True, changes=True
            ),
        }

    async def list(self, call: Call, params: TasksParams) -> ScheduledTaskList:  # noqa: ARG002
        """Tasks, newest first."""
        found = await tasks.every(self._database, params.limit + 1, LISTED)
        infos = [self._info(one) for one in found[: params.limit]]
        shown = await fitting.fitted(infos, LISTED)
        return ScheduledTaskList(
            tasks=shown,
            more=len(found) > len(shown),
            scheduler=await self._app.scheduler_info(),
        )

    async def show(self, call: Call, params: TaskParams) -> TaskDetails:  # noqa: ARG002
        """A task with its newest runs."""
        task_id = await self._id(params.task)
        runs = [
            TaskRunInfo(
                run_at=at,
                duration_ms=duration,
                status=status,
                result=result,
                error=error,
                cut=fitting.named(TaskRunInfo, cut),
            )
            for at, duration, status, result, error, cut in await tasks.logged(
                self._database, task_id, RUNS_SHOWN, MAX_LINE_OUT // RUNS_SHOWN
            )
        ]
        # The task has what its runs leave, and they leave a half at least.
        shown = await fitting.fitted(runs, MAX_LINE_OUT, fitting.ROOM // 2)
        room = fitting.ROOM - len(msgspec.json.encode(shown))
        (task,) = await fitting.fitted(
            [await self._shown(task_id, MAX_LINE_OUT)], MAX_LINE_OUT, room
        )
        return TaskDetails(task=task, runs=shown)

    async def pause(self, call: Call, params: TaskParams) -> TaskPaused:
        """Let the task not run until it is resumed; a run that was claimed takes place."""
        async with self._changing:
            done = await self._done(call)
            while done is None:
                task = await self._task(params.task)
                if task.status == TaskState.COMPLETED:
                    raise InvalidRequest(
                        "The task has run, and has no next time: nothing was changed."
                    )
                changed = task.status != TaskState.PAUSED
                noted = Noted(task.id, await requests.run_of(self._database, task.id), changed)
                done = await self._change(call, noted, requests.pause(task.id))
        now = asdict(await self._listed(done.task_id))
        run, session = await self._standing(done, deleted=False)
        return TaskPaused(**now, changed=done.changed, run=run, session=session)

    async def resume(self, call: Call, params: TaskParams) -> TaskResumed:
        """Let the task run by its schedule, counted from now; a time that has passed is due."""
        async with self._changing:
            done = await self._done(call)
            while done is None:
                task = await self._task(params.task)
                changed = task.status != TaskState.ACTIVE
                following = await self._resumed(task) if changed else None
                noted = Noted(task.id, None, changed)
                done = await self._change(call, noted, requests.resume(task, following))
        return TaskResumed(**asdict(await self._listed(done.task_id)), changed=done.changed)

    async def _resumed(self, task: Task) -> str | None:
        """When the task runs next. Raises for one that cannot be resumed."""
        if task.status != TaskState.PAUSED:
            raise InvalidRequest(f"The task is not paused but {task.status}: nothing was changed.")
        try:
            following = await asyncio.to_thread(
                compute_next_run, task.schedule_type, task.schedule_value
            )
        except ValueError as error:
            raise InvalidParams(f"The task's schedule cannot be read: {error}") from error
        begun = task.last_run or task.id in {run.task.id for run in self._app.runs.running}
        if begun and task.schedule_type == "once" and (following or "") <= now_text():
            raise InvalidRequest(f"{BEGUN} To let it run again, use `pykoclaw-acp tasks run`.")
        return following

    async def cancel(self, call: Call, params: TaskParams) -> TaskCancelled:
        """Delete the task and what is kept of its runs. A run that has begun goes on, one that has
        not does not happen.
        """
        async with self._changing:
            if (done := await self._done(call)) is None:
                task_id = await self._id(params.task)
                done = Noted(task_id, await requests.run_of(self._database, task_id), changed=True)
                ends = (*requests.delete(task_id), *requests.give_up_runs(task_id))
                if await self._change(call, done, *ends) is None:
                    raise InvalidParams(GONE)
                crash_points.reached("task_deleted")
                self._app.runs.give_up(task_id)
        run, session = await self._standing(done, deleted=True)
        return TaskCancelled(task=done.task_id, run=run, session=session)

    async def run(self, call: Call, params: RunTaskParams) -> TaskStarted:
        """Run the task now, whatever its schedule and state; its schedule does not change."""
        async with self._changing:
            if (done := await self._done(call)) is None:
                task = await self._task(params.task)
                if not self._app.runs.room:
                    raise InvalidRequest(
                        "Too many tasks run at once. Try again when one of them has ended."
                    )
                run = await self._begin(task, call, given_by(params.environment))
                done = Noted(task.id, run.turn_id, changed=True)
        return TaskStarted(task=done.task_id, turn_id=done.turn_id or "")

    async def _begin(self, task: Task, call: Call, given: ClientEnvironment | None) -> TaskRun:
        try:
            return await self._app.runs.begin(
                task, task.next_run, manual=True, asked=call.key, given=given
            )
        except Conflict as error:
            raise InvalidRequest("The task runs already, or was changed just now.") from error

    async def _done(self, call: Call) -> Noted | None:
        """What an earlier daemon, or this one, has done for the request; None if it is new."""
        return None if call.key is None else await requests.noted(self._database, call.key)

    async def _change(self, call: Call, done: Noted, *change: Statement) -> Noted | None:
        """Commit a change of a task, with what its request is answered if it comes again; None if the
        task is not as it was read.
        """
        kept: tuple[Statement, ...] = ()
        if call.key is not None:
            clock = self._database.clock.now()
            kept = requests.note(call.key, done.task_id, done.turn_id, clock, changed=done.changed)
        try:
            await self._database.commit(Unit((*change, *kept)))
        except Conflict:
            return None
        self._app.runs.changed.set()
        return done

    async def _standing(
        self, done: Noted, *, deleted: bool
    ) -> tuple[RunStanding | None, str | None]:
        """What becomes of the run that a change has met, and its session; None if there was none."""
        if done.turn_id is None:
            return None, None
        return await requests.standing(self._database, done.turn_id, deleted=deleted)

    async def _listed(self, task_id: str) -> TaskInfo:
        return fitting.shortened(await self._shown(task_id, LISTED), LISTED)

    async def _shown(self, task_id: str, most: int) -> TaskInfo:
        found = await tasks.shown(self._database, task_id, most)
        if found is None:
            raise InvalidParams(GONE)
        return self._info(found)

    async def _task(self, word: str) -> Task:
        found = await tasks.whole(self._database, await self._id(word))
        if found is None:
            raise InvalidParams(GONE)
        return found

    async def _id(self, word: str) -> str:
        found = await tasks.ids(self._database, word)
        if not found:
            raise InvalidParams(GONE)
        if len(found) > 1:
            raise InvalidParams(f"More than one task's id begins with {word}. Give more of it.")
        return found[0]

    def _info(self, one: CutTask) -> TaskInfo:
        task = one.task
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
            cut=fitting.named(TaskInfo, one.sizes),
            running=any(run.task.id == task.id for run in self._app.runs.running),
        )
