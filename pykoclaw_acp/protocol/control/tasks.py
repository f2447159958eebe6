"""`_pykoclaw.dev/tasks/…`: scheduled tasks, their runs, and who runs them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pykoclaw_acp.model.scheduled import RunStanding, SchedulerState
from pykoclaw_acp.protocol.control.answers import MAX_ITEMS, CutAnswer, FullAnswer
from pykoclaw_acp.protocol.limits import Id, Name
from pykoclaw_acp.protocol.wire import Params


class TasksParams(Params, frozen=True, kw_only=True):
    """At most `limit`, the newest."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_ITEMS)] = 1000


class TaskParams(Params, frozen=True, kw_only=True):
    """`task`: an id, or the beginning of one that no other task has."""

    task: Id


class RunTaskParams(TaskParams, frozen=True, kw_only=True):
    """`environment`: variables of the caller, for a worker that is started for the run; they are not
    kept.
    """

    environment: dict[Name, str] | None = None


class SchedulerInfo(FullAnswer, frozen=True, kw_only=True):
    """Who runs scheduled tasks: this daemon, if it is `on` and does not stand by for pykoclaw's
    scheduler (`other`: its pid). `running`: tasks that this daemon runs.
    """

    state: SchedulerState
    other: int | None
    running: int


class TaskInfo(CutAnswer, frozen=True, kw_only=True):
    """A scheduled task, with the times and words of pykoclaw's table; `running`: this daemon runs
    it. `delivers_to`: the conversation that gets the result. Long texts are cut; of `tasks/show` only
    those for which a line has no room.
    """

    id: str
    conversation: str
    prompt: str
    schedule_type: str
    schedule_value: str
    context_mode: str
    target_conversation: str | None
    delivers_to: str
    next_run: str | None
    last_run: str | None
    last_result: str | None
    status: str
    created_at: str
    running: bool


class TaskPaused(TaskInfo, frozen=True, kw_only=True):
    """Result of `tasks/pause`; `changed`: the task was not paused before. `run`: what a run does that
    was claimed and has no result, in this `session`; null: there is none.
    """

    changed: bool
    run: RunStanding | None
    session: str | None


class TaskResumed(TaskInfo, frozen=True, kw_only=True):
    """Result of `tasks/resume`; `changed`: the task was not active before."""

    changed: bool


class ScheduledTaskList(FullAnswer, frozen=True, kw_only=True):
    """Newest first; `more`: there are others, for which there may be no room. `scheduler`: see `SchedulerInfo`."""

    tasks: list[TaskInfo]
    more: bool
    scheduler: SchedulerInfo


class TaskRunInfo(CutAnswer, frozen=True, kw_only=True):
    """A run of a task, by any program; `status` is `success` or `error`."""

    run_at: str
    duration_ms: int
    status: str
    result: str | None
    error: str | None


class TaskDetails(FullAnswer, frozen=True, kw_only=True):
    """A task with its newest runs, newest first."""

    task: TaskInfo
    runs: list[TaskRunInfo]


class TaskCancelled(FullAnswer, frozen=True, kw_only=True):
    """The task that was deleted; `run` and `session` as in TaskPaused."""

    task: str
    run: RunStanding | None
    session: str | None


class TaskStarted(FullAnswer, frozen=True, kw_only=True):
    """A run that was asked for: the task, and the turn that the run is."""

    task: str
    turn_id: str
