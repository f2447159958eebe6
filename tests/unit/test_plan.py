"""The plan that clients are shown, from the results of Claude's task tools as the CLI
gives them.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.model.events import Event, Plan, PlanEntry, TextPart, ToolEnded, ToolStarted
from pykoclaw_acp.translation.plan import TaskList
from pykoclaw_acp.translation.translator import ToolResult, Translation


class Calls:
    """Calls of tools, one after the other."""

    def __init__(self) -> None:
        self.tasks = TaskList()
        self.count = 0

    def __call__(
        self, name: str, details: object, **arguments: Any
    ) -> list[tuple[str, str]] | None:
        """The plan after this call; None if it is no news."""
        self.count += 1
        self.tasks.called(f"t{self.count}", name, arguments)
        told = self.tasks.ended(f"t{self.count}", details)
        return [(entry.content, entry.status) for entry in told[0].entries] if told else None


def created(number: int, subject: str) -> dict[str, Any]:
    return {"task": {"id": str(number), "subject": subject, "description": "…"}}


def updated(number: int) -> dict[str, Any]:
    return {"success": True, "taskId": str(number), "updatedFields": ["status"]}


def test_tasks_that_are_made_changed_and_deleted() -> None:
    call = Calls()
    assert call("TaskCreate", created(1, "Look"), subject="Look") == [("Look", "pending")]
    assert call("TaskCreate", created(2, "Write"), subject="Write") == [
        ("Look", "pending"),
        ("Write", "pending"),
    ]
    assert call("TaskUpdate", updated(1), taskId="1", status="completed") == [
        ("Look", "completed"),
        ("Write", "pending"),
    ]
    assert call(
        "TaskUpdate", updated(2), taskId="2", subject="Write it down", status="in_progress"
    ) == [
        ("Look", "completed"),
        ("Write it down", "in_progress"),
    ]
    assert call("TaskUpdate", updated(2), taskId="2", description="Longer.") is None
    assert call("TaskUpdate", updated(1), taskId="1", status="deleted") == [
        ("Write it down", "in_progress")
    ]


def test_list_replaces_known_tasks() -> None:
    call = Calls()
    call("TaskCreate", created(7, "Gone"), subject="Gone")
    listed = {"tasks": [{"id": "3", "subject": "Look", "status": "in_progress", "blockedBy": []}]}
    assert call("TaskList", listed) == [("Look", "in_progress")]
    assert call("TaskList", listed) is None
    assert call("TaskList", {"tasks": []}) == []


def test_new_worker_continues_list_of_log() -> None:
    call = Calls()
    call.tasks = TaskList.of([PlanEntry("Look", "completed", "1"), PlanEntry("Write", id="2")])
    assert call("TaskUpdate", updated(2), taskId="2", status="completed") == [
        ("Look", "completed"),
        ("Write", "completed"),
    ]


def test_todos_become_a_plan() -> None:
    todos = [{"content": "Look", "status": "completed", "activeForm": "Looking"}]
    assert Calls()("TodoWrite", {"oldTodos": [], "newTodos": todos}) == [("Look", "completed")]


def test_what_is_no_list_or_unknown_changes_nothing() -> None:
    call = Calls()
    assert call("Bash", {"stdout": "", "task": {"id": "1", "subject": "No"}}) is None
    assert call("TaskCreate", "Error: No such tool available: TaskCreate.") is None
    assert call("TaskUpdate", updated(9), taskId="9", status="completed") is None
    tasks = TaskList()
    tasks.called("t", "TaskCreate", {})
    assert tasks.ended("t", created(1, "Look")) == [Plan((PlanEntry("Look", id="1"),))]
    assert tasks.ended("t", created(2, "Again")) == []


@pytest.mark.parametrize("of_subagent", [False, True])
def test_change_that_cli_refuses_is_shown_as_failed(*, of_subagent: bool) -> None:
    """As by a hook, or where the task is gone; the CLI does not call it an error."""
    before = PlanEntry("Build", "pending", "1")
    translation = Translation("/w", tasks=TaskList.of([before]))
    refused = {"success": False, "taskId": "1", "updatedFields": [], "error": "tests fail"}
    assert translation.start_tool("t", "TaskUpdate", {"taskId": "1", "status": "completed"}) == []
    text = "tests fail"
    events = translation.end_tools([ToolResult("t", text)], None if of_subagent else refused)
    started, ended = events
    assert isinstance(started, ToolStarted)
    assert isinstance(ended, ToolEnded)
    assert (ended.status, ended.content) == ("failed", (TextPart("```\ntests fail\n```"),))
    assert list(translation.tasks.tasks.values()) == [before]


def test_subagents_work_on_same_list() -> None:
    """Their results have no structured form."""
    translation = Translation("/w", tasks=TaskList.of([PlanEntry("Look", "pending", "1")]))
    translation.start_tool("agent", "Agent", {"description": "d", "prompt": "p"})

    def call(tool_id: str, name: str, text: object, **arguments: str) -> list[Event]:
        assert translation.start_tool(tool_id, name, arguments, "agent") == []
        return translation.end_tools([ToolResult(tool_id, text)], None)

    done = PlanEntry("Look", "completed", "1")
    updated = [{"type": "text", "text": "Updated task #1 status\n\nGo on."}]
    assert call("a", "TaskUpdate", updated, taskId="1", status="completed") == [Plan((done,))]
    made = "Task #2 created successfully: Write"
    assert call("b", "TaskCreate", made, subject="Write", description="d") == [
        Plan((done, PlanEntry("Write", "pending", "2")))
    ]
    assert call("c", "TaskUpdate", "Updated task #2 status", taskId="2", status="deleted") == [
        Plan((done,))
    ]
    assert call("d", "TaskList", "#1 [completed] Look") == []
