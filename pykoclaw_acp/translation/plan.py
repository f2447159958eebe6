"""The task list that Claude keeps with its tools TaskCreate, TaskUpdate and TodoWrite, as a plan
for the client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from pykoclaw_acp.model.events import Plan, PlanEntry, PlanStatus
from pykoclaw_acp.translation.texts import first_text

UPDATED: Final = "Updated task #"  # the CLI's words for the model
_CREATED: Final = re.compile(r"Task #(\S+) created successfully")
_TOOLS: Final = ("TaskCreate", "TaskUpdate", "TaskList", "TodoWrite")
_STATUSES: Final[tuple[PlanStatus, ...]] = get_args(PlanStatus)


@dataclass(slots=True)
class TaskList:
    """The task list, as far as it is known. Claude tells changes alone, so a new worker begins with
    the list that the log has last.
    """

    tasks: dict[str, PlanEntry] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def of(entries: Sequence[PlanEntry]) -> TaskList:
        """The list with these entries; those without an id are of an older version, and unknown."""
        return TaskList({one.id: one for one in entries if one.id})

    def called(self, tool_id: str, name: str, arguments: dict[str, Any]) -> None:
        """Take a tool call."""
        if name in _TOOLS:
            self.calls[tool_id] = arguments

    def ended(self, tool_id: str, details: object, blocks: object = None) -> list[Plan]:
        """Take the structured result of a tool call; returns the whole plan if it has changed.

        That of a subagent, which works on the same list, has only `blocks` for the model.
        """
        arguments = self.calls.pop(tool_id, None)
        if arguments is None:
            return []
        if not isinstance(details, dict):
            details = _read(first_text(blocks), arguments)
        before = dict(self.tasks)
        if isinstance(listed := details.get("newTodos", details.get("tasks")), list):
            self.tasks = {
                (key := str(one.get("id", at))): _entry(
                    key, one, one.get("content") or one.get("subject")
                )
                for at, one in enumerate(listed)
                if isinstance(one, dict)
            }
        elif isinstance(made := details.get("task"), dict):
            key = str(made.get("id"))
            self.tasks[key] = _entry(key, made, made.get("subject"))
        elif details.get("success") is False:
            return []
        elif (task := str(details.get("taskId"))) in self.tasks:
            self._update(task, arguments)
        return [] if self.tasks == before else [Plan(tuple(self.tasks.values()))]

    def cleared(self) -> list[Plan]:
        """The list went with Claude's memory; returns the empty plan if there was one."""
        had, self.tasks = self.tasks, {}
        return [Plan(())] if had else []

    def _update(self, task: str, arguments: dict[str, Any]) -> None:
        if arguments.get("status") == "deleted":
            del self.tasks[task]
            return
        known = self.tasks[task]
        self.tasks[task] = _entry(
            task,
            {"status": arguments.get("status", known.status)},
            arguments.get("subject", known.content),
        )


def _read(text: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the text says that the model gets, as far as it is of a change."""
    if made := _CREATED.match(text):
        return {"task": {"id": made[1], "subject": arguments.get("subject")}}
    return {"taskId": arguments.get("taskId")} if text.startswith(UPDATED) else {}


def _entry(key: str, task: dict[str, Any], content: object) -> PlanEntry:
    status: PlanStatus = next((one for one in _STATUSES if one == task.get("status")), "pending")
    return PlanEntry(str(content), status, key)
