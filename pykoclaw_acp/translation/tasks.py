"""Commands and subagents: the tool calls that the CLI makes tasks of, which may go on in the
background.
"""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pykoclaw_acp.model.events import COMMANDS, Output, TextPart, ToolPart
from pykoclaw_acp.translation import service_errors
from pykoclaw_acp.translation.stories import Story
from pykoclaw_acp.translation.texts import coloured, fenced, one_line, output_text, settled

MOST_ID: Final = 200  # characters
MOST_WHAT: Final = 200
MOST_WORDS: Final = 60  # of a command in a sentence
MOST_LINE: Final = 4096
MOST: Final = 1000  # calls that are remembered; those that run first
MOST_SHOWN: Final = 8 * 1024  # bytes of a command's output that are shown as long as it runs
AGENTS: Final = ("Agent", "Task")  # tools that begin subagents
MESSAGE: Final = "SendMessage"  # with which one goes on
_FAILED: Final = ("failed", "killed", "stopped", "error")
# At its end: before it comes Claude's description. What a code means is said where it is no failure
_EXIT: Final = re.compile(r"(?:\(|\bwith )exit code (-?\d{1,5})(?:: ([^()]{0,200}))?\)?\s?\Z")
_SUFFIX: Final = ".output"
# In place of a call, where the user has begun a skill that runs as a subagent
_BY_USER: Final = "forked-command-"


class TaskEnd(msgspec.Struct, frozen=True):
    """What the CLI says when a task has ended; `task`: its id. `report`: the summary is a subagent's.
    `interim`: it has stopped until background work of its own ends; that it goes on then, and ends,
    is told again.
    """

    status: str
    summary: str = ""
    usage: dict[str, Any] | None = None
    task: str = ""
    report: bool = False
    interim: bool = False

    @property
    def exit_code(self) -> int | None:
        """Exit code of a command, unless it has a `meaning`; the CLI says it in words only."""
        found = self._exit
        return None if found is None or found[2] else int(found[1])

    @property
    def meaning(self) -> str:
        """What the code says with which a command has succeeded, such as `No matches found`."""
        found = self._exit
        return "" if found is None else found[2] or ""

    @property
    def _exit(self) -> re.Match[str] | None:
        told = not self.report and self.status not in ("killed", "stopped")
        return _EXIT.search(self.summary) if told else None

    @property
    def failed(self) -> bool:
        """Whether it did not come to a good end."""
        return self.status in _FAILED or self.exit_code not in (None, 0)


@dataclass(slots=True)
class ClaudeTask:
    """A call of a command or a subagent. `id`: the CLI's, which names the file of its output."""

    call: str
    tool: str
    what: str = ""  # the command, or what the subagent is to do
    agent: str | None = None  # kind of the subagent
    id: str = ""
    background: bool = False
    command: tuple[TextPart, ...] = ()
    notes: list[str] = field(default_factory=list)
    output: Output | None = None
    story: Story = field(default_factory=Story)
    stopped: str | None = None  # why, if we know
    by_name: bool = False  # stopped by a request about this task alone
    error: str | None = None
    end: TaskEnd | None = None  # which came before the result of its call, or is for now
    over: bool = False

    @property
    def waits(self) -> bool:
        """Whether it has stopped until background work of its own ends."""
        return self.end is not None and self.end.interim and not self.over

    @property
    def runs(self) -> bool:
        """Whether the CLI can stop it."""
        return bool(self.id) and not self.over and (self.end is None or self.waits)

    @property
    def words(self) -> str:
        """What it is, in a sentence."""
        what = one_line(self.what, MOST_LINE)
        if len(what) > MOST_WORDS:
            what = f"{what[: MOST_WORDS - 1]}…"
        if self.agent is not None:
            return f"background agent “{what}”"
        if self.tool == "Bash":
            what = what.replace("`", "'")
            return f"background command `{what}`"
        return f"monitor “{what}”" if self.tool == "Monitor" else f"{self.tool} “{what}”"

    def content(self, *, ended: bool = False) -> tuple[ToolPart, ...]:
        """What the call shows as long as it runs, and when it has `ended` without a result."""
        if self.agent is None:
            told = shown(self.output, ended=ended)
        else:
            told = self.story.final_parts(()) if ended else self.story.content()
        return (*self.command, *told, *self.noted())

    def noted(self) -> tuple[ToolPart, ...]:
        """Notes for the user about how it runs."""
        return tuple(TextPart(note, beside=True) for note in self.notes)

    def forget(self) -> None:
        """Note that the task is over: nothing is shown any more."""
        self.over, self.output, self.story = True, None, Story()

    def is_told(self, status: str) -> bool:
        """Whether Claude is told of this end, and answers to it."""
        return status != "stopped" or (self.by_name and self.agent is not None)

    def reason(self, end: TaskEnd) -> str | None:
        """Why it has failed; None if it has not."""
        if not end.failed:
            return None
        if self.stopped is not None:
            return self.stopped
        if end.exit_code is not None:
            return f"Exit code {end.exit_code}"
        if self.error is not None:
            told = service_errors.of_agent(self.error)
            return told or f"It failed: {output_text(self.error)}"
        if end.status in ("killed", "stopped"):
            return "It was stopped."
        return f"It failed. {output_text(end.summary)}".strip()

    def describe_end(self, end: TaskEnd) -> str:
        """Sentence that says how the task ended."""
        if end.interim:
            return f"The {self.words} waits for background work of its own."
        reason = self.reason(end)
        if reason is None:
            told = end.meaning if end.exit_code is None else f"exit code {end.exit_code}"
            return f"The {self.words} has ended{f' ({told})' if told else ''}."
        code = f" (exit code {end.exit_code})" if end.exit_code is not None else ""
        return f"The {self.words} has failed{code}." if code else f"The {self.words}: {reason}"


@dataclass(slots=True)
class ClaudeTasks:
    """Background work of one Claude session: what runs, and the newest tasks that have ended."""

    calls: dict[str, ClaudeTask] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)  # of the CLI, to calls

    def begin(self, call: str, tool: str, arguments: dict[str, Any]) -> None:
        """A call was made; those of commands and subagents are followed."""
        if tool in COMMANDS:
            key = "command" if tool == "Bash" else "description"
            self._add(ClaudeTask(call, tool, str(arguments.get(key, ""))))
        elif tool in AGENTS:
            kind = str(arguments.get("subagent_type") or "agent")
            self._add(ClaudeTask(call, tool, str(arguments.get("description", "")), kind))

    def named(self, call: str, task_id: str, *, background: bool, tool: str = "") -> None:
        """The CLI has made a task of the call."""
        task = self.calls.get(call)
        if task is None:
            task = self._add(ClaudeTask(call, tool))
        if tool == MESSAGE:
            agent = self.of(task_id)
            task.agent, task.what = (agent.agent, agent.what) if agent else ("agent", task.what)
        task.id, task.background = task_id, task.background or background
        if task_id:
            self._ids[task_id] = call
            if len(self._ids) > MOST:
                gone = (one for one, its in self._ids.items() if self._is_over(its))
                del self._ids[next(gone, next(iter(self._ids)))]

    def named_agent(self, call: str, kind: str, what: str) -> None:
        """The call is of a subagent of this kind, also if an earlier look has found it."""
        task = self.calls.get(call) or self._add(ClaudeTask(call, "Agent", what))
        task.agent = kind

    def subagents(self) -> list[ClaudeTask]:
        """Subagents that run in the background."""
        return [
            task
            for task in self.calls.values()
            if task.agent is not None and task.background and not task.over
        ]

    def of(self, task_id: str) -> ClaudeTask | None:
        """The task that the CLI names so."""
        return self.calls.get(self._ids.get(task_id, ""))

    def newest(self, call: str | None) -> str | None:
        """The call under which the subagent works now that this one has begun: one that has sent it
        on, or the same; None if no call has begun it.
        """
        if call is not None and call.startswith(_BY_USER):
            return None
        task = self.calls.get(call or "")
        return call if task is None else self._ids.get(task.id, call)

    def lands_on(self, tool: str, arguments: dict[str, Any]) -> ClaudeTask | None:
        """The task whose output the call asks for, or which it stops."""
        if tool == "Read":
            name = os.path.basename(str(arguments.get("file_path", "")))
            task = self.of(name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None
            return task if task is not None and task.agent is None else None
        if tool in ("TaskStop", "KillShell"):
            return self.of(str(arguments.get("task_id") or arguments.get("shell_id") or ""))
        return None

    def watching(self) -> list[str]:
        """Commands that run, to each line of whose output Claude answers, in words."""
        return [
            task.words
            for task in self.calls.values()
            if task.tool == "Monitor" and task.background and not task.over
        ]

    def agent_of(self, call: str | None) -> str | None:
        """Kind of the subagent that this call has begun."""
        task = self.calls.get(call or "")
        return None if task is None else task.agent

    def _add(self, task: ClaudeTask) -> ClaudeTask:
        self.calls[task.call] = task
        if len(self.calls) > MOST:
            del self.calls[next(filter(self._is_over, self.calls), next(iter(self.calls)))]
        return task

    def _is_over(self, call: str) -> bool:
        task = self.calls.get(call)
        return task is None or task.over


def goes_on(details: object) -> tuple[str, str | None] | None:
    """Read the result of a call that goes on in the background: the CLI's id of it, and a note for
    the user; None for any other result.
    """
    if not isinstance(details, dict):
        return None
    if task_id := details.get("backgroundTaskId"):
        return str(task_id), _why_background(details)
    if "persistent" in details and details.get("taskId"):  # a monitor
        return str(details["taskId"]), None
    if resumed := details.get("resumedAgentId"):
        return str(resumed), None
    if details.get("isAsync") is True or details.get("status") == "async_launched":
        return str(details.get("agentId") or ""), None
    return None


def read(details: object) -> str | None:
    """What a Read has found, if it read the file from its beginning."""
    file = details.get("file") if isinstance(details, dict) else None
    if not isinstance(file, dict) or file.get("startLine", 1) != 1:
        return None
    found = file.get("content")
    return found if isinstance(found, str) else None


def newest(text: str) -> Output:
    """The newest part of a whole output."""
    data = text.encode(errors="replace")
    shown = data[-MOST_SHOWN:].decode(errors="ignore")
    return Output(shown, len(data) - len(shown.encode()))


def shown(output: Output | None, *, ended: bool = False) -> tuple[ToolPart, ...]:
    """Output of a command, as its call shows it; with its colours when the command has ended."""
    if output is None:
        return ()
    before = f"… {output.start} bytes before this\n" if output.start else ""
    whole = before + settled(output.text)
    text = fenced(whole)
    return (TextPart(text, coloured=coloured(whole) if ended else ""),) if text else ()


def _why_background(details: dict[str, Any]) -> str | None:
    limit = details.get("timedOutAfterMs")
    if isinstance(limit, int | float):
        return f"Its time limit of {limit / 1000:g} s is over; it was moved to the background."
    if details.get("backgroundedByUser"):
        return "It was moved to the background."
    return None
