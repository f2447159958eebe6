"""Calls that go on for long, as events: what they show meanwhile, and how they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pykoclaw_acp.model.events import Event, Output, TextPart, ToolEnded, ToolPart, ToolProgressed
from pykoclaw_acp.translation import reasons, stories, tasks
from pykoclaw_acp.translation.stories import Story
from pykoclaw_acp.translation.tasks import ClaudeTask, TaskEnd
from pykoclaw_acp.translation.texts import one_line

BY_CLAUDE: Final = "Stopped by Claude."


@dataclass(slots=True)
class Hidden:
    """A call of Claude's that is shown as part of the one that began the task; also by itself, if the
    user is asked about it.
    """

    task: ClaudeTask
    name: str
    arguments: dict[str, Any]
    parent_id: str | None

    @property
    def call(self) -> tuple[str, dict[str, Any], str | None]:
        """What was called."""
        return self.name, self.arguments, self.parent_id

    def read(self, details: object) -> list[Event]:
        """The result: what a poll has found is news of the task, unless that is known."""
        found = tasks.read(details) if self.name == "Read" else None
        if not found or self.task.over or found in (self.task.output or Output("")).text:
            return []
        self.task.output = tasks.newest(found)
        return [progress(self.task)]


@dataclass(slots=True)
class LongCalls:
    """Long calls of one Claude session, and Claude's calls about them."""

    known: tasks.ClaudeTasks = field(default_factory=tasks.ClaudeTasks)
    hidden: dict[str, Hidden] = field(default_factory=dict)
    stopping: str | None = None  # why tasks end now that nobody stops by name

    def begin(
        self, tool_id: str, name: str, arguments: dict[str, Any], parent_id: str | None
    ) -> bool:
        """Note a call; returns whether it is shown as part of another one."""
        task = self.known.lands_on(name, arguments)
        if task is None:
            self.known.begin(tool_id, name, arguments)
            return False
        self.hidden[tool_id] = Hidden(task, name, arguments, parent_id)
        if name != "Read":
            task.stopped = task.stopped or BY_CLAUDE
        return True

    def result(self, tool_id: str, details: object, *, failed: bool) -> list[Event]:
        """What the result of a call says of the task that it is shown as part of."""
        if failed:
            self.unanswered([tool_id])
        hidden = self.hidden.pop(tool_id, None)
        return [] if hidden is None else hidden.read(details)

    def unanswered(self, calls: Sequence[str]) -> None:
        """Calls that have failed, or have got no result: those shown as part of another one have
        stopped nothing.
        """
        for tool_id in calls:
            hidden = self.hidden.pop(tool_id, None)
            if hidden and hidden.name != "Read" and hidden.task.stopped == BY_CLAUDE:
                hidden.task.stopped = None

    def command(self, tool_id: str) -> str:
        """What a call of Bash runs; empty for other calls, or if it is not known any more."""
        task = self.known.calls.get(tool_id)
        return "" if task is None or task.tool != "Bash" else task.what

    def headed(self, tool_id: str, command: tuple[TextPart, ...]) -> None:
        """The call shows its command above its output."""
        if (task := self.known.calls.get(tool_id)) is not None:
            task.command = command

    @contextmanager
    def stopped(self, tool_id: str, reason: str) -> Iterator[None]:
        """The task of this call is being stopped; unless that fails, this is why it ends."""
        task = self.known.calls.get(tool_id) or ClaudeTask(tool_id, "")
        task.stopped, task.by_name = reason, True
        try:
            yield
        except BaseException:
            task.stopped, task.by_name = None, False
            raise

    def titled(self, parent_id: str | None, title: str) -> str:
        """The title of a call; a subagent's begin with its kind."""
        agent = self.known.agent_of(parent_id)
        return title if agent is None else one_line(f"{agent}: {title}")

    def note_background(self, tool_id: str, name: str, details: object) -> bool:
        """Note what the result of a call says of the background; returns whether it goes on there."""
        if (found := tasks.goes_on(details)) is not None:
            task_id, note = found
            self.known.named(tool_id, task_id, background=True, tool=name)
            if note is not None:
                self.known.calls[tool_id].notes.append(note)
            return True
        task = self.known.calls.get(tool_id)
        return task is not None and task.background

    def launched(self, tool_id: str) -> list[Event]:
        """What a call shows that now goes on in the background, if there is something to show."""
        task = self.known.calls[tool_id]
        return [progress(task)] if task.notes else []

    def end_of(self, tool_id: str) -> TaskEnd | None:
        """The end of a task that came before the result of its call."""
        task = self.known.calls.get(tool_id)
        return None if task is None else task.end

    def ended_early(self, tool_id: str, end: TaskEnd) -> None:
        """A task has ended whose call has no result yet, or has told of its end for now."""
        if (task := self.known.calls.get(tool_id)) is not None:
            task.end = end

    def ended(self, tool_id: str, end: TaskEnd) -> Event:
        """The end of a call that went on in the background."""
        task = self.known.calls.get(tool_id) or ClaudeTask(tool_id, "")
        if end.status in ("killed", "stopped") and task.stopped is None:
            task.stopped = self.stopping
        reason = task.reason(end)
        if task.agent is None:
            if end.meaning:
                task.notes.append(f"({end.meaning})")
            told = (*tasks.shown(task.output, ended=True), *task.noted())
            parts = (*task.command, *told) if told or end.failed else ()
        else:
            report = [end.summary] if reason is None else []
            parts = (*task.story.final_parts(report, end.usage), *task.noted())
        task.forget()
        status: Literal["completed", "failed"] = "failed" if end.failed else "completed"
        why = None if end.exit_code else reason
        is_told = task.is_told(end.status)
        return ToolEnded(
            tool_id, status, parts, exit_code=end.exit_code, reason=why, background=is_told
        )

    def report(self, tool_id: str, details: object) -> tuple[ToolPart, ...] | None:
        """What a subagent that was waited for shows in the end; None for other calls."""
        task = self.known.calls.get(tool_id)
        if task is None:
            return None
        found = None if task.agent is None else stories.of_foreground(details)
        parts = None if found is None else task.story.final_parts(*found)
        task.forget()
        return parts

    def left(self, tool_id: str) -> tuple[ToolPart, ...]:
        """What a call showed that ends without a result."""
        task = self.known.calls.get(tool_id)
        if task is None:
            return ()
        parts = task.content(ended=True)
        task.forget()
        return parts

    def why(self, turn: str, call: str | None, end: TaskEnd) -> list[Event]:
        """Why Claude has begun a turn by itself, when the task of this call had ended."""
        task = self.known.calls.get(call or "") or self.known.of(end.task)
        return reasons.line(turn, {} if task is None else {task.call: task.describe_end(end)})

    def say(self, call: str, kind: str, text: str) -> None:
        """A subagent has said or thought something."""
        task = self.known.calls.get(self.known.newest(call) or "")
        if task is not None and not task.over:
            task.story.say(kind, text)

    def story(self, task_id: str) -> Story | None:
        """What the subagent of this task has said and done so far."""
        task = self.known.of(task_id)
        return None if task is None or task.agent is None or task.over else task.story


def progress(task: ClaudeTask) -> ToolProgressed:
    """What the call of a task shows now."""
    return ToolProgressed(task.call, task.content(), task.output)
