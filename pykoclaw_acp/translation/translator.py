"""Translation of what Claude says and does to neutral events; all of its state is here.

What a content block became depends on where it comes from: streamed in deltas, sent complete by the
CLI, or read from a transcript. Tool calls are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pykoclaw_acp.model.choices import OF_SERVER
from pykoclaw_acp.model.events import (
    COMMANDS,
    EDITS,
    Event,
    Output,
    Text,
    TextPart,
    Thinking,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
    split_text,
)
from pykoclaw_acp.model.plain import plain
from pykoclaw_acp.translation import deciding, diffs, exit_codes, titles, tools, undone
from pykoclaw_acp.translation.long_calls import LongCalls
from pykoclaw_acp.translation.mcp_names import McpNames
from pykoclaw_acp.translation.plan import TaskList
from pykoclaw_acp.translation.results import LAST_MISSING, STOPPED, result
from pykoclaw_acp.translation.tasks import TaskEnd
from pykoclaw_acp.translation.texts import one_line

UNANSWERED: Final = "It was not answered before its turn ended."
CANCELLED: Final = "Stopped, as its turn was cancelled."
AGENT_ENDED: Final = "The subagent that called it has ended."


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call, as the Messages API has it."""

    tool_use_id: str
    content: Any = None
    is_error: bool | None = None


@dataclass(slots=True)
class Translation:
    """The state of one Claude session; `cwd` shortens paths in titles."""

    cwd: str
    names: dict[str, str] = field(default_factory=dict)  # of tools, by call
    # Call to the subagent's call that it is part of
    running: dict[str, str | None] = field(default_factory=dict)
    background: dict[str, None] = field(default_factory=dict)
    tasks: TaskList = field(default_factory=TaskList)
    long: LongCalls = field(default_factory=LongCalls)
    mcp: McpNames = field(default_factory=McpNames)
    commands: dict[str, tuple[TextPart, ...]] = field(default_factory=dict)  # above their output
    started: dict[str, ToolStarted] = field(default_factory=dict)  # running calls, as they began
    added: tuple[str, ...] = ()  # directories that belong to the session besides `cwd`
    plans: str = ""  # the directory of Claude's plans, which are not shown as files
    quiet: dict[str, ToolStarted] = field(default_factory=dict)  # calls that are not shown yet
    decided: dict[str, dict[str, Any]] = field(default_factory=dict)  # inputs that are shown again
    asked: dict[str, tools.AskedCall] = field(default_factory=dict)  # what a question stands for

    def knows(self, tool_id: str) -> bool:
        """Whether the call was reported."""
        return tool_id in self.names

    def caller(self, tool_id: str) -> tuple[str | None, str | None]:
        """The call of the subagent that has made a running call, and its kind; None for Claude
        itself.
        """
        parent = self.running.get(tool_id)
        return parent, self.long.known.agent_of(parent)

    def title_of_question(self, tool_id: str, name: str, arguments: dict[str, Any]) -> str:
        """Title of a permission request: that of an MCP tool's call is the call's own."""
        if name.startswith(OF_SERVER) and (call := self.started.get(tool_id)) is not None:
            return call.title
        title = titles.asked(name, arguments, self.cwd)
        _, agent = self.caller(tool_id)
        return title if agent is None else f"{one_line(agent)}: {title}"

    def say(self, kind: str, message_id: str, text: str) -> list[Event]:
        """Events of a text or a thought."""
        if kind == "thinking":
            return [Thinking(message_id, piece) for piece in split_text(plain(text))]
        return [Text(message_id, piece) for piece in split_text(plain(text))]

    def start_tool(
        self, tool_id: str, name: str, arguments: dict[str, Any], parent_id: str | None = None
    ) -> list[Event]:
        """Events that report a tool call, once per call."""
        if tool_id in self.names:
            return []
        self.names[tool_id] = name
        parent_id = self.long.known.newest(parent_id)
        if self.long.begin(tool_id, name, arguments, parent_id):
            return []
        return self._started(tool_id, name, arguments, parent_id)

    def _started(
        self, tool_id: str, name: str, arguments: dict[str, Any], parent_id: str | None
    ) -> list[Event]:
        self.tasks.called(tool_id, name, arguments)
        self.running[tool_id] = None if parent_id == tool_id else parent_id
        shown = tools.content(name, arguments, self.cwd)
        title = titles.title(name, arguments, self.cwd, self.mcp.called(tool_id, name))
        if command := tools.command(shown):
            self.commands[tool_id] = command
            self.long.headed(tool_id, command)
        started = self.started[tool_id] = ToolStarted(
            tool_call_id=tool_id,
            name=name,
            title=self.long.titled(parent_id, title),
            tool_kind=tools.kind(name),
            input=tools.shown_input(arguments),
            content=shown,
            locations=tools.locations(name, arguments, self.cwd),
            parent_id=parent_id,
        )
        if name in deciding.DECIDED:
            self.decided[tool_id] = arguments
        if deciding.is_quiet(name, arguments, self.plans):
            self.quiet[tool_id] = started
            return []
        return [started]

    @property
    def open_calls(self) -> set[str]:
        """Calls without a result, also those that clients are not shown."""
        return {*self.running, *self.long.hidden}

    def restore(
        self, tool_id: str, name: str, arguments: dict[str, Any] | None, *, quiet: bool | None
    ) -> None:
        """A call that was taken in earlier, and `quiet` or reported; None: that is not known."""
        self.start_tool(tool_id, name, arguments or {})
        if (began := self.started.get(tool_id)) is None:
            return
        if quiet:
            self.quiet[tool_id] = began
        elif quiet is not None:
            self.quiet.pop(tool_id, None)
        if arguments is None:  # what it shows is not known
            self.started.pop(tool_id)
            self.decided.pop(tool_id, None)

    def ask_for(self, tool_id: str, name: str, arguments: dict[str, Any]) -> list[Event]:
        """Events that report a call about which the user is asked, if it was not shown yet."""
        return [*self.start_tool(tool_id, name, arguments), *self._reveal(tool_id)]

    def note_asked(
        self, tool_id: str, arguments: dict[str, Any], changes: tuple[ToolPart, ...] = ()
    ) -> None:
        """Note that the user is asked about a call: clients show this input, and these changes."""
        if (call := self.started.get(tool_id)) is not None:
            other = tools.shown_input(arguments) if call.input != arguments else None
            self.asked[tool_id] = tools.AskedCall(call.title, other, changes)

    def allowed(self, tool_id: str) -> list[Event]:
        """Events after a question about a call, which shows its changes, or what it showed before."""
        if (call := self.started.get(tool_id)) is None:
            return []
        asked = self.asked.get(tool_id, tools.AskedCall())
        self.asked[tool_id] = asked._replace(title=None)  # some clients see the end only
        output = Output("") if call.name in COMMANDS else None
        shown, title = self._call_shown(tool_id), call.title
        return [ToolProgressed(tool_id, shown, output, title, allowed=True, input=asked.input)]

    def _call_shown(self, tool_id: str) -> tuple[ToolPart, ...]:
        """What a call shows that has put nothing out: the changes in a question about it, or what it
        began with.
        """
        began = self.started.get(tool_id)
        asked = self.asked.get(tool_id, tools.AskedCall())
        return asked.changes or (() if began is None else began.content)

    def _reveal(self, tool_id: str) -> list[Event]:
        """Events that report a call which was not shown, or only as part of another one."""
        hidden = self.long.hidden.get(tool_id)
        if hidden is not None and tool_id not in self.running:
            return self._started(tool_id, *hidden.call)
        started = self.quiet.pop(tool_id, None)
        return [] if started is None else [started]

    def end_tools(self, results: Sequence[ToolResult], details: object) -> list[Event]:
        """Events of results; `details` is the CLI's own form of them."""
        events: list[Event] = []
        for one in results:
            tool_id = one.tool_use_id
            events.extend(self._reveal(tool_id) if one.is_error else ())
            events.extend(self.long.result(tool_id, details, failed=bool(one.is_error)))
            if tool_id not in self.running or tool_id in self.background:
                continue  # of a call in the background only its end follows
            if self.long.note_background(tool_id, self.names[tool_id], details):
                self.background[tool_id] = None
                events.extend(self._sent_on(tool_id))
                events.extend(self.long.launched(tool_id))
                if (end := self.long.end_of(tool_id)) is not None:
                    events.extend(self.end_task(tool_id, end))
            else:
                own = details if len(results) == 1 else None  # they are of one result
                why = undone.why(self.names[tool_id], one.content, own)
                if one.is_error or why is not None or tool_id not in self.quiet:
                    events.extend(self._reveal(tool_id))
                    events.append(self._ended(tool_id, bool(one.is_error), one.content, own))
                else:
                    self._forget(tool_id)
                events.extend(self.tasks.ended(tool_id, own, one.content))
        return events

    def task_end(self, status: str, summary: str, usage: Any, task_id: str) -> TaskEnd:
        """The CLI's words on a task's end; a subagent's is `interim` while its commands go on."""
        known = self.long.known
        task = known.of(task_id)
        report = task is not None and task.agent is not None
        end = TaskEnd(status, summary, dict(usage) if usage else None, task_id, report)
        if task is None or end.failed:
            return end
        # Claude is told of the end of its subagents, and it does not go on
        commands = (one for one in self.background if known.agent_of(one) is None)
        own = any(known.newest(self.running.get(one)) == task.call for one in commands)
        return msgspec.structs.replace(end, interim=own)

    def end_task(self, tool_id: str | None, end: TaskEnd) -> list[Event]:
        """The end of a call that went on in the background, with the calls of its subagent; those
        that are in the background themselves end later, as the CLI tells.
        """
        tool_id = self.ended_call(tool_id, end)
        if tool_id is None:
            return []
        if tool_id not in self.background or end.interim:
            self.long.ended_early(tool_id, end)
            return []
        events = self.end_these(self.inner(tool_id), AGENT_ENDED)
        self._forget(tool_id)
        return [*events, self.long.ended(tool_id, end)]

    def ended_call(self, tool_id: str | None, end: TaskEnd) -> str | None:
        """The call that this is the end of: the CLI does not name one that it has named before."""
        task = self.long.known.of(end.task)
        known = tool_id if task is None else task.call  # some services use the id of a call again
        return known if known in self.background or tool_id not in self.background else tool_id

    def inner(self, tool_id: str) -> list[str]:
        """Running calls of the subagent of this call that end with it."""
        return [
            one
            for one, parent in self.running.items()
            if parent == tool_id and one not in self.background
        ]

    def _sent_on(self, tool_id: str) -> list[Event]:
        """End the call whose subagent waited, and now goes on under this one."""
        events: list[Event] = []
        for one in list(self.background):
            task = self.long.known.calls.get(one)
            if one != tool_id and self.long.known.newest(one) == tool_id and task and task.end:
                end = msgspec.structs.replace(task.end, task="", interim=False)
                events.extend(self.end_task(one, end))
        return events

    def end_unanswered(self, reason: str = UNANSWERED) -> list[Event]:
        """Fail calls without a result at the end of a turn, but those that go on in the background."""
        hidden = self.long.hidden.items()
        self.long.unanswered([one for one, its in hidden if not self._goes_on(its.parent_id)])
        return self.end_these([one for one in self.running if not self._goes_on(one)], reason)

    def _goes_on(self, tool_id: str | None) -> bool:
        """Whether a running call, or one that it is part of, is in the background; of a call that was
        never reported nothing else is known.
        """
        at = tool_id
        while at is not None and at not in self.background:
            if at not in self.running:
                return at not in self.names
            at = self.running[at]
        return at is not None

    def end_these(self, calls: Sequence[str], reason: str = UNANSWERED) -> list[Event]:
        """These calls have failed without a result."""
        events: list[Event] = []
        self.long.unanswered(calls)
        for tool_id in calls:
            events.extend(self._reveal(tool_id))
            shown = self.long.left(tool_id) or self._call_shown(tool_id)
            asked = self.asked.get(tool_id, tools.AskedCall())
            events.append(
                ToolEnded(
                    tool_id, "failed", shown, reason=reason, title=asked.title, input=asked.input
                )
            )
            self._forget(tool_id)
        return events

    def under_command(self, tool_id: str, parts: tuple[ToolPart, ...]) -> tuple[ToolPart, ...]:
        """Output of a running call as clients are shown it, since it replaces what they show."""
        return (*self.commands.get(tool_id, ()), *parts) if parts else ()

    def _ended(self, tool_id: str, failed: bool, content: object, details: object) -> Event:
        told = details or diffs.of_new_file(self.started.get(tool_id), content)
        found = result(self.names[tool_id], content, failed=failed, details=told, cwd=self.cwd)
        failed = failed or found.failed
        stopped = found.parts == (TextPart(STOPPED),)
        if (stopped or found.cut) and (live := self.long.left(tool_id)):
            self._forget(tool_id)
            if stopped:
                return ToolEnded(tool_id, "failed", live, reason=STOPPED)
            most = (*live, TextPart(LAST_MISSING, beside=True))
            return ToolEnded(tool_id, "failed", most, exit_code=found.exit_code)
        report = self.long.report(tool_id, details)
        parts = deciding.result(
            self.names[tool_id], self.decided.get(tool_id), details, found.parts, failed=failed
        )
        if failed and self.names[tool_id] in EDITS:
            parts = (*self._call_shown(tool_id), *parts)
        shown = self.under_command(tool_id, parts if report is None else report)
        code = found.exit_code
        if self.running.get(tool_id) and details is None and not failed:
            code = exit_codes.of_success(self.long.command(tool_id), content)
        asked = self.asked.get(tool_id, tools.AskedCall())
        ended = ToolEnded(
            tool_id,
            "failed" if failed else "completed",
            content=shown or (self.commands.get(tool_id, ()) if code else ()),
            exit_code=code,
            locations=found.locations,
            title=asked.title,
            input=asked.input,
            told=found.told,
        )
        self._forget(tool_id)
        return ended

    def _forget(self, tool_id: str) -> None:
        known: tuple[dict[str, Any], ...] = (
            *(self.running, self.background, self.commands, self.started),
            *(self.quiet, self.decided, self.asked),
        )
        for one in known:
            one.pop(tool_id, None)
