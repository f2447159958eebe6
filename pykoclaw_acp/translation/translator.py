"""Translation of what Claude says and does to neutral events; all of its state is here.

What a content block became depends on where it comes from: streamed in deltas, sent complete by the
CLI, or read from a transcript. Tool calls are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pykoclaw_acp.model.events import (
    Event,
    Text,
    TextPart,
    Thinking,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
    split_text,
)
from pykoclaw_acp.translation import texts, titles, tools
from pykoclaw_acp.translation.plan import TaskList
from pykoclaw_acp.translation.results import result

_TASK_FAILED: Final = ("failed", "killed", "stopped", "error")


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
    running: dict[str, str | None] = field(
        default_factory=dict
    )  # call to the subagent's call that it is part of
    background: dict[str, None] = field(default_factory=dict)
    tasks: TaskList = field(default_factory=TaskList)
    labels: dict[str, str] = field(default_factory=dict)  # names for people of calls' tools
    commands: dict[str, tuple[TextPart, ...]] = field(
        default_factory=dict
    )  # that calls show above their output

    def knows(self, tool_id: str) -> bool:
        """Whether the call was reported."""
        return tool_id in self.names

    def say(self, kind: str, message_id: str, text: str) -> list[Event]:
        """Events of a text or a thought."""
        if kind == "thinking":
            return [Thinking(message_id, piece) for piece in split_text(text)]
        return [Text(message_id, texts.plain(piece)) for piece in split_text(text)]

    def start_tool(
        self, tool_id: str, name: str, arguments: dict[str, Any], parent_id: str | None = None
    ) -> list[Event]:
        """Events that report a tool call, once per call."""
        if tool_id in self.names:
            return []
        self.names[tool_id] = name
        self.tasks.called(tool_id, name, arguments)
        self.running[tool_id] = parent_id
        if command := tools.command(name, arguments, self.cwd):
            self.commands[tool_id] = command
        return [
            ToolStarted(
                tool_call_id=tool_id,
                name=name,
                title=titles.title(name, arguments, self.cwd, self.labels.pop(tool_id, None)),
                tool_kind=tools.kind(name),
                input=tools.shown_input(arguments),
                content=tools.content(name, arguments, self.cwd),
                locations=tools.locations(name, arguments, self.cwd),
                parent_id=parent_id,
            )
        ]

    def end_tools(self, results: Sequence[ToolResult], details: object) -> list[Event]:
        """Events of results; `details` is the CLI's own form of them."""
        events: list[Event] = []
        for one in results:
            if one.tool_use_id not in self.running:
                continue
            if isinstance(details, dict) and details.get("backgroundTaskId"):
                self.background[one.tool_use_id] = None
                parts = result(self.names[one.tool_use_id], one.content, failed=False).parts
                parts = self.under_command(one.tool_use_id, parts)
                events.append(ToolProgressed(one.tool_use_id, content=parts))
            else:
                own = details if len(results) == 1 else None  # they are of one result
                events.append(self._ended(one.tool_use_id, bool(one.is_error), one.content, own))
                events.extend(self.tasks.ended(one.tool_use_id, details))
        return events

    def end_task(self, tool_id: str | None, status: str, summary: str) -> list[Event]:
        """The end of a call that went on in the background."""
        if tool_id is None or tool_id not in self.background:
            return []
        return [self._ended(tool_id, status in _TASK_FAILED, summary)]

    def end_unanswered(self) -> list[Event]:
        """The calls of the main agent that got no result by the end of their turn have failed."""
        unanswered = [
            one
            for one, parent in self.running.items()
            if parent is None and one not in self.background
        ]
        return self.end_these(unanswered)

    def end_these(self, calls: Sequence[str]) -> list[Event]:
        """These calls have failed without a result."""
        return [self._ended(tool_id, failed=True) for tool_id in calls]

    def under_command(self, tool_id: str, parts: tuple[ToolPart, ...]) -> tuple[ToolPart, ...]:
        """Output of a running call as clients are shown it, since it replaces what they show."""
        return (*self.commands.get(tool_id, ()), *parts) if parts else ()

    def _ended(
        self, tool_id: str, failed: bool, content: object = None, details: object = None
    ) -> Event:
        found = result(self.names[tool_id], content, failed=failed, details=details, cwd=self.cwd)
        shown = self.under_command(tool_id, found.parts)
        ended = ToolEnded(
            tool_id,
            "failed" if failed else "completed",
            content=shown or (self.commands.get(tool_id, ()) if found.exit_code else ()),
            exit_code=found.exit_code,
            locations=found.locations,
        )
        self.running.pop(tool_id, None)
        self.background.pop(tool_id, None)
        self.commands.pop(tool_id, None)
        return ended
