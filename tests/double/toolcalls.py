"""The tools of pykoclaw's agent: each writes at once, in the process that runs the turn."""

from __future__ import annotations

from typing import Any, Final

from tests.double.handle import Handle
from tests.double.rules import next_run
from tests.double.tables import (
    create_task,
    delete_task,
    get_all_tasks,
    get_task,
    get_tasks_for_conversation,
    update_task,
)

_TEXT: Final = {"type": "string"}
_ID: Final = {"type": "object", "properties": {"task_id": _TEXT}, "required": ["task_id"]}
SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "schedule_task": {
        "type": "object",
        "properties": {
            "prompt": _TEXT,
            "schedule_type": {"type": "string", "enum": ["cron", "interval", "once"]},
            "schedule_value": _TEXT,
            "context_mode": {"type": "string", "enum": ["group", "isolated"]},
            "target_conversation": _TEXT,
        },
        "required": ["prompt", "schedule_type", "schedule_value"],
    },
    "list_tasks": {"type": "object", "properties": {"all": {"type": "boolean"}}},
    "pause_task": _ID,
    "resume_task": _ID,
    "cancel_task": _ID,
}


def call(db: Handle, conversation: str, name: str, arguments: dict[str, Any]) -> str:
    """The text of a tool's result. Raises what cannot be parsed; then no row was written."""
    if name == "schedule_task":
        return _schedule(db, conversation, arguments)
    if name == "list_tasks":
        return _listed(db, conversation, bool(arguments.get("all")))
    task_id = arguments["task_id"]
    if name == "pause_task":
        update_task(db, task_id, status="paused")
        return f"Task {task_id} paused."
    if name == "cancel_task":
        delete_task(db, task_id)
        return f"Task {task_id} cancelled."
    if name != "resume_task":
        raise KeyError(name)
    task = get_task(db, task_id)
    if task is None:
        return f"Task {task_id} not found."
    following = next_run(task.schedule_type, task.schedule_value)
    update_task(db, task_id, status="active", next_run=following)
    return f"Task {task_id} resumed. Next run: {following}"


def _schedule(db: Handle, conversation: str, arguments: dict[str, Any]) -> str:
    kind, value = arguments["schedule_type"], arguments["schedule_value"]
    target = arguments.get("target_conversation")
    following = next_run(kind, value)
    task_id = create_task(
        db,
        conversation=conversation,
        prompt=arguments["prompt"],
        schedule_type=kind,
        schedule_value=value,
        next_run=following,
        context_mode=arguments.get("context_mode", "group"),
        target_conversation=target,
    )
    tail = f" Results will be delivered to: {target}" if target else ""
    return f"Task {task_id} scheduled. Next run: {following}{tail}"


def _listed(db: Handle, conversation: str, everything: bool) -> str:
    tasks = get_all_tasks(db) if everything else get_tasks_for_conversation(db, conversation)
    if not tasks:
        return f"No tasks scheduled {'anywhere' if everything else 'for this conversation'}."
    lines = ["Tasks:"]
    for task in tasks:
        owner = f"[{task.conversation}] " if everything else ""
        lines.append(
            f"  {task.id}: {owner}{task.prompt[:50]} ({task.status}, next: {task.next_run})"
        )
    return "\n".join(lines)


def server(db: Handle, conversation: str) -> Any:
    """The tools as an MCP server of the SDK, for a turn of this conversation."""
    from claude_agent_sdk import create_sdk_mcp_server, tool

    def made(name: str) -> Any:
        @tool(name, name, SCHEMAS[name])
        async def run(arguments: dict[str, Any]) -> dict[str, Any]:
            text = call(db, conversation, name, arguments)
            return {"content": [{"type": "text", "text": text}]}

        return run

    return create_sdk_mcp_server("pykoclaw", tools=[made(name) for name in SCHEMAS])
