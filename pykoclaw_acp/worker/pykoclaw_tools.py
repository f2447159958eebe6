"""The MCP server `pykoclaw`: the tools that pykoclaw's programs give the agent, under their names,
schemas and answers. They are bound to a conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from claude_agent_sdk import SdkMcpTool, ToolAnnotations, create_sdk_mcp_server
from claude_agent_sdk.types import McpSdkServerConfig

from pykoclaw_acp.channel.database import SqlResult, SqlStatement, from_rows
from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.model import schedule
from pykoclaw_acp.model.scheduled import TaskState
from pykoclaw_acp.system import other_scheduler
from pykoclaw_acp.worker import brave_search
from pykoclaw_acp.worker.database_calls import DatabaseCalls

NAME: Final = "pykoclaw"
OTHER_NAME: Final = "pykoclaw-acp"  # where a client's server has that name
UNASKED: Final = ("list_tasks",)  # tools that no question is needed for

SHOWN: Final = 50  # characters of a prompt in a list
_INSERT: Final = (
    "INSERT INTO scheduled_tasks (id, conversation, prompt, schedule_type, schedule_value, context_mode,"
    " target_conversation, next_run, status, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COLUMNS: Final = "SELECT id, conversation, prompt, status, next_run FROM scheduled_tasks"

_STRING: Final = {"type": "string"}
_SCHEDULE: Final = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What the agent is to do when the task runs."},
        "schedule_type": {
            "type": "string",
            "enum": ["cron", "interval", "once"],
            "description": (
                '"cron": by a cron expression in UTC, for example "0 9 * * *". "interval": every so '
                'many milliseconds, for example "3600000". "once": at an ISO 8601 time, for example '
                '"2027-03-01T12:00:00Z".'
            ),
        },
        "schedule_value": {
            "type": "string",
            "description": "A cron expression, milliseconds or an ISO 8601 time, by schedule_type.",
        },
        "context_mode": {
            "type": "string",
            "enum": ["group", "isolated"],
            "description": (
                '"group" (default): the run continues the conversation. "isolated": each run begins '
                "with an empty one."
            ),
        },
        "target_conversation": {
            "type": "string",
            "description": (
                "The conversation that gets the results, instead of this one: its full name with "
                'its channel, for example "wa-andy-120363@g.us". A name without a channel gets that '
                "of this conversation."
            ),
        },
    },
    "required": ["prompt", "schedule_type", "schedule_value"],
}
_LIST: Final = {
    "type": "object",
    "properties": {
        "all": {
            "type": "boolean",
            "description": "Whether to list the tasks of all conversations instead of this one's.",
        }
    },
}
_TASK: Final = {"type": "object", "properties": {"task_id": _STRING}, "required": ["task_id"]}

_NOT_RUN: Final = (
    "\nBut nothing runs scheduled tasks at present. Tell the user: they run with PYKOCLAW_SCHEDULER=on,"
    " after a restart of the daemon, or while pykoclaw's own scheduler runs."
)

# Whether the task's run that has no result has begun, and in which session.
_RUN: Final = (
    "SELECT t.dispatched_at IS NOT NULL, t.acp_session_id FROM acp_task_runs r"
    " LEFT JOIN acp_turns t ON t.turn_id = r.turn_id WHERE r.task_id = ? AND r.ended_at IS NULL"
)
_WAITS: Final = " Its run that waits to begin takes place all the same; cancel_task prevents that."
_CALLED_OFF: Final = " Its run had not begun, and does not take place."

Said = Callable[[dict[str, Any]], Awaitable[str]]


def name_beside(taken: Collection[str]) -> str:
    """The server's name in a session whose client has given servers of these names."""
    names = (OTHER_NAME, *(f"{OTHER_NAME}-{n}" for n in range(2, len(taken) + 3)))
    return next(one for one in names if one not in taken)


def server(conversation: str, calls: DatabaseCalls, brave_key: str | None) -> McpSdkServerConfig:
    """The server, for `ClaudeAgentOptions.mcp_servers`."""
    tasks = TaskTools(conversation, calls)
    made = [
        _tool(
            "schedule_task",
            "Schedule a task: a prompt that runs later, once or repeatedly. The results go to this "
            "conversation, or to target_conversation.",
            _SCHEDULE,
            tasks.schedule,
        ),
        _tool(
            "list_tasks",
            "List the scheduled tasks of this conversation, or of all conversations.",
            _LIST,
            tasks.show,
            reads=True,
        ),
        _tool("pause_task", "Pause a scheduled task.", _TASK, tasks.pause),
        _tool("resume_task", "Resume a paused task.", _TASK, tasks.resume),
        _tool("cancel_task", "Cancel and delete a scheduled task.", _TASK, tasks.cancel),
    ]
    if brave_key:

        async def search(given: dict[str, Any]) -> str:
            return await asyncio.to_thread(brave_search.search, brave_key, given)

        made.append(_tool("brave_search", brave_search.DESCRIPTION, brave_search.SCHEMA, search))
    return create_sdk_mcp_server(NAME, tools=made)


class TaskTools:
    """The tools for scheduled tasks; each takes its arguments, valid by its schema, and returns
    text. An exception's text is the model's answer.
    """

    def __init__(self, conversation: str, calls: DatabaseCalls) -> None:
        self._conversation = conversation
        self._calls = calls

    async def schedule(self, given: dict[str, Any]) -> str:
        """Create a task; ValueError for a schedule that cannot be understood."""
        kind, value = given["schedule_type"], given["schedule_value"]
        next_run = await asyncio.to_thread(schedule.compute_next_run, kind, value)
        task_id, target = uuid4().hex[:8], given.get("target_conversation")
        row = [
            task_id, self._conversation, given["prompt"], kind, value,
            given.get("context_mode", "group"), target, next_run, TaskState.ACTIVE, schedule.now_text(),
        ]  # fmt: skip
        await self._calls.run(SqlStatement(_INSERT, row))
        said = f"Task {task_id} scheduled. Next run: {next_run}"
        where = f" Results will be delivered to: {target}" if target else ""
        return f"{said}{where}{await self._unless_run()}"

    async def show(self, given: dict[str, Any]) -> str:
        """The tasks of the conversation, or of all, newest first."""
        everywhere = given.get("all", False)
        where = ("", []) if everywhere else (" WHERE conversation = ?", [self._conversation])
        rows = await self._rows(f"{_COLUMNS}{where[0]} ORDER BY created_at DESC", where[1])
        if not rows:
            return f"No tasks scheduled {'anywhere' if everywhere else 'for this conversation'}."
        lines = ["Tasks:"]
        for task_id, conversation, prompt, status, next_run in rows:
            of = f"[{conversation}] " if everywhere else ""
            lines.append(f"  {task_id}: {of}{prompt[:SHOWN]} ({status}, next: {next_run})")
        return "\n".join(lines)

    async def pause(self, given: dict[str, Any]) -> str:
        """Pause a task, if there is one."""
        task_id = given["task_id"]
        update = "UPDATE scheduled_tasks SET status = ? WHERE id = ?"
        runs, _ = await self._calls.run(
            SqlStatement(_RUN, [task_id]), SqlStatement(update, [TaskState.PAUSED, task_id])
        )
        return f"Task {task_id} paused.{_of_run(runs, _WAITS)}"

    async def resume(self, given: dict[str, Any]) -> str:
        """Resume a task; its next run is computed from now on."""
        task_id = given["task_id"]
        sql = "SELECT schedule_type, schedule_value FROM scheduled_tasks WHERE id = ?"
        if not (rows := await self._rows(sql, [task_id])):
            return f"Task {task_id} not found."
        next_run = await asyncio.to_thread(schedule.compute_next_run, *rows[0])
        update = "UPDATE scheduled_tasks SET next_run = ?, status = ? WHERE id = ?"
        await self._calls.run(SqlStatement(update, [next_run, TaskState.ACTIVE, task_id]))
        return f"Task {task_id} resumed. Next run: {next_run}{await self._unless_run()}"

    async def cancel(self, given: dict[str, Any]) -> str:
        """Delete a task and the logs of its runs, if there is one. A run that has not begun never
        does: the daemon sees to that.
        """
        task_id = given["task_id"]
        runs, *_ = await self._calls.run(
            SqlStatement(_RUN, [task_id]),
            SqlStatement("DELETE FROM task_run_logs WHERE task_id = ?", [task_id]),
            SqlStatement("DELETE FROM scheduled_tasks WHERE id = ?", [task_id]),
        )
        return f"Task {task_id} cancelled.{_of_run(runs, _CALLED_OFF)}"

    async def _unless_run(self) -> str:
        """What is to be known if neither the daemon nor pykoclaw's scheduler runs tasks."""
        if self._calls.scheduler != "off":
            return ""
        path = Path(self._calls.data) / DATABASE
        try:
            other = await asyncio.to_thread(other_scheduler.find, path)
        except OSError:  # nobody knows; the task is scheduled all the same
            return ""
        return _NOT_RUN if other is None else ""

    async def _rows(self, sql: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        (found,) = await self._calls.run(SqlStatement(sql, parameters))
        return from_rows(found.rows)


def _of_run(found: SqlResult, unbegun: str) -> str:
    """What becomes of a task's run, as a sentence; empty without one. `unbegun`: of one that has not
    begun.
    """
    for begun, session in from_rows(found.rows):
        if not begun:
            return unbegun
        return (
            " Its run had begun, and goes on. The user can stop it in the client, or with"
            f" `pykoclaw-acp workers stop {session}`."
        )
    return ""


def _tool(
    name: str, description: str, schema: dict[str, Any], said: Said, *, reads: bool = False
) -> SdkMcpTool[Any]:
    async def handle(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await said(given)}]}

    hints = ToolAnnotations(readOnlyHint=True) if reads else None
    return SdkMcpTool(name, description, schema, handle, hints)
