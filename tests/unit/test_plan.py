"""The plan that clients are shown, from the results of Claude's task tools as the CLI
gives them.
"""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.model.events import Plan, PlanEntry
from pykoclaw_acp.translation.plan import TaskList


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
