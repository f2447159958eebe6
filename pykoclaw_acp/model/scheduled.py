"""Scheduled tasks and their runs: plain data, and pykoclaw's rules for results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.events import Event, Text, ToolStarted
from pykoclaw_acp.model.schedule import compute_next_run, now_text

SHORTEST_INTERVAL: Final = timedelta(seconds=60)  # of pykoclaw's own scheduler
ORIGIN: Final = "scheduler"  # of a run's prompt in the log, whichever scheduler it is
SUMMARY: Final = 200  # characters of a result that `last_result` keeps
CANCELLED: Final = "The run was cancelled."  # the error of a run that nobody lets go on
RULE: Final = "\n\n---\n\n"  # between text before a tool call and text after it


class TaskState(StrEnum):
    """State of a scheduled task. Values of `scheduled_tasks.status`, which is pykoclaw's."""

    ACTIVE = "active"  # runs when its time comes
    PAUSED = "paused"  # does not run until it is resumed
    COMPLETED = "completed"  # has run, and has no next time


class TaskRunState(StrEnum):
    """How a run of a task ended. Values of `task_run_logs.status`, which is pykoclaw's."""

    SUCCESS = "success"  # with a result, which may be empty
    ERROR = "error"  # without one


class RunStanding(StrEnum):
    """What a change of a task means for a run that was claimed and has no result."""

    WAITS = "waits"  # it has not begun, and will
    CANCELLED = "cancelled"  # it had not begun, and never will
    GOES_ON = "goes_on"  # it had begun


class SchedulerState(StrEnum):
    """Whether this daemon runs scheduled tasks."""

    ON = "on"  # it does
    OFF = "off"  # by its settings it does not
    STANDS_BY = "stands_by"  # not while pykoclaw's scheduler runs


def run_key(turn_id: str) -> str:
    """The request key of a turn that is a run, or may become one."""
    return f"task:{turn_id}"


class Task(msgspec.Struct, frozen=True):
    """A row of `scheduled_tasks`."""

    id: str
    conversation: str
    prompt: str
    schedule_type: str
    schedule_value: str
    context_mode: str
    target_conversation: str | None
    next_run: str | None
    last_run: str | None
    last_result: str | None
    status: str
    created_at: str

    @property
    def isolated(self) -> bool:
        """Whether it runs without the conversation's history."""
        return self.context_mode != "group"

    def after(self) -> str | None:
        """When the task runs next, counted from now; None if there is none. An interval has a minute at least.
        Blocks, and raises ValueError, as `compute_next_run`.
        """
        if self.schedule_type not in ("cron", "interval"):
            return None
        now = datetime.now(UTC)
        following = compute_next_run(self.schedule_type, self.schedule_value, now)
        if following is None or self.schedule_type == "cron":
            return following
        return now_text(max(datetime.fromisoformat(following), now + SHORTEST_INTERVAL))


@dataclass(frozen=True, slots=True)
class CutTask:
    """A task whose long texts are cut; `sizes` (bytes) of those, by their names."""

    task: Task
    sizes: dict[str, int]


@dataclass(slots=True)
class TaskRun:
    """A run from its claim to its result; `turn_id` is that of the turn that it is: once a parked request
    of that is answered, of the turn that tells Claude.

    `claimed`: the next run that the claim has written. `manual`: somebody asked for it, and the
    schedule does not change. `aside`: in a session of its own. `started_at`: ms since 1970. `asked`:
    the key of the request that asked for it, which may come again.
    """

    turn_id: str
    task: Task
    claimed: str | None
    manual: bool
    started_at: int
    session_id: str | None = None
    aside: bool = False
    asked: str | None = None

    @property
    def began(self) -> datetime:
        """When it was claimed."""
        return datetime.fromtimestamp(self.started_at / 1000, UTC)

    def following(self) -> str | None:
        """The next run by the schedule, counted from now; None of a run that somebody asked for, and
        where the schedule cannot be read, as of a run that nobody had claimed. Blocks as `after`.
        """
        with suppress(ValueError):
            return None if self.manual else self.task.after()
        return None

    @property
    def request_key(self) -> str:
        """Under which its prompt is accepted once."""
        return run_key(self.turn_id)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a run ended; without an `error` its `text` is delivered, if there is any.

    `next_run`: by the schedule, counted from the end. `shown`: the user was shown the text where
    it would be delivered. `begins`: the row of a conversation that nobody had begun before the run.
    """

    text: str
    error: str | None
    next_run: str | None
    duration_ms: int
    shown: bool = False
    begins: Conversation | None = None

    @property
    def summary(self) -> str:
        """What `last_result` keeps."""
        if self.error is not None:
            return f"Error: {self.error}"
        return self.text[:SUMMARY] or "Completed"


def answer(events: Iterable[Event | None]) -> str:
    """What Claude has said in a turn, with a rule between what was said before and after tools."""
    return "".join(text for _, text in said_in(events))


def said_in(events: Iterable[Event | None]) -> Iterator[tuple[int, str]]:
    """Yield the parts of the answer, each with the position of its event."""
    said = tools = False
    for at, event in enumerate(events):
        if isinstance(event, ToolStarted):
            tools = said
        elif isinstance(event, Text) and event.text and not event.note:
            if tools:
                yield at, RULE
            said, tools = True, False
            yield at, event.text
