"""What goes on beside a turn: tasks of the CLI, their live output, and turns that Claude starts by
itself when they have ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from claude_agent_sdk import (
    Message,
    SystemMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    ToolResultBlock,
    UserMessage,
)
from msgspec.structs import replace

from pykoclaw_acp.model.events import Event, ToolStarted
from pykoclaw_acp.system.credentials import configuration
from pykoclaw_acp.translation import kept_outputs
from pykoclaw_acp.translation.tasks import MESSAGE
from pykoclaw_acp.translation.translator import CANCELLED, Translation
from pykoclaw_acp.worker.live_output import END_WAIT, LiveOutput
from pykoclaw_acp.worker.self_started import SelfStarted


class LongWork:
    """Long work of one worker; `note` takes events that belong to no turn."""

    def __init__(
        self, temporary: str, translation: Translation, note: Callable[[Event], None]
    ) -> None:
        self.tasks = 0  # that run in the background
        self._translation = translation
        self._long = translation.long
        self._note = note
        self._live = LiveOutput(temporary, translation, note)
        self._own = SelfStarted()
        claude = configuration(os.environ, os.path.expanduser("~"))
        self._projects = os.path.join(claude, "projects")

    async def take(self, message: Message) -> bool:
        """Follow the tasks; whether the number of those in the background was told."""
        if isinstance(message, UserMessage):
            await self._complete(message)
        elif isinstance(message, TaskNotificationMessage):
            await self._live.finish(message.task_id)
            self._ended(message)
        elif isinstance(message, SystemMessage):
            data = message.data
            if data.get("status") == "requesting":
                self._own.requested()
            elif message.subtype == "background_tasks_changed":
                tasks = data.get("tasks")
                self.tasks = len(tasks) if isinstance(tasks, list) else 0
                return True
            if isinstance(message, TaskStartedMessage):
                self._started(message, background=data.get("is_backgrounded") is True)
            elif message.subtype == "task_updated":
                self._updated(str(data.get("task_id")), data.get("patch"))
            elif message.subtype == "task_progress":
                self._progress(data)
        return False

    def begin(self, message: Message, turn: str | None, prompted: str | None) -> Sequence[Event]:
        """What is said before a turn that Claude has started by itself."""
        return self._own.begin(message, turn, prompted, self._long.known.watching())

    def end(self, turn: str | None) -> Sequence[Event]:
        """What is said after such a turn."""
        self._long.stopping = None
        return [] if turn is None else self._own.end(turn)

    def refresh(self, events: Sequence[Event] = ()) -> None:
        """Check which calls have begun or ended, after these events were reported."""
        for event in events:
            self._own.follow(event)
        self._live.refresh()

    def interrupted(self) -> None:
        """The turn is being interrupted, and subagents with it."""
        self._long.stopping = CANCELLED

    def close(self) -> None:
        """Follow no longer."""
        self._live.close()

    def _started(self, message: TaskStartedMessage, *, background: bool) -> None:
        call = message.tool_use_id
        if call is None:
            return
        known = self._long.known
        call = known.newest(call) or call
        task = known.calls.get(call)
        if task is not None and task.over and task.agent is not None:
            call = self._message(call, message)
        name = self._translation.names.get(call, "")
        known.named(call, message.task_id, background=background, tool=name)
        task = known.calls[call]
        task.end = None  # it goes on, if it had waited
        if not task.what:
            task.what = message.description
        if task.agent is None and message.data.get("task_type") == "local_agent":  # of a skill
            task.agent = str(message.data.get("subagent_type") or "agent")

    async def _complete(self, message: UserMessage) -> None:
        """Give long outputs of commands and MCP tools their ends."""
        for block in message.content if isinstance(message.content, list) else ():
            if not isinstance(block, ToolResultBlock) or not isinstance(block.content, str):
                continue
            call = block.tool_use_id
            name = self._translation.names.get(call, "")
            if block.is_error or not kept_outputs.is_kept(name, block.content):
                continue
            given = block.content, message.tool_use_result, self._projects
            task = self._long.known.calls.get(call)
            live = "" if task is None or task.output is None else task.output.text
            try:
                async with asyncio.timeout(END_WAIT):
                    completed = await asyncio.to_thread(kept_outputs.complete, *given, live)
            except TimeoutError:
                return
            block.content, message.tool_use_result = completed

    def _message(self, former: str, message: TaskStartedMessage) -> str:
        """A subagent whose call has ended goes on with a message that had waited: in a call of ours."""
        call = f"{message.tool_use_id}-{message.uuid}"
        given = {"summary": message.description, "message": message.data.get("prompt")}
        for event in self._translation.start_tool(call, MESSAGE, given):
            continues = isinstance(event, ToolStarted) and event.tool_call_id == call
            self._note(replace(event, continues=former) if continues else event)
        self._translation.background[call] = None
        return call

    def _updated(self, task_id: str, patch: Any) -> None:
        task = self._long.known.of(task_id)
        if task is None or not isinstance(patch, dict):
            return
        if patch.get("is_backgrounded") is True:
            task.background = True
        if isinstance(patch.get("error"), str):
            task.error = patch["error"]
        if patch.get("status") == "killed" and task.end is not None and task.waits:
            # The CLI tells this end neither otherwise nor to Claude
            task.by_name = False
            end = replace(task.end, status="stopped", interim=False)
            for event in self._translation.end_task(task.call, end):
                self._note(event)

    def _progress(self, data: dict[str, Any]) -> None:
        story = self._long.story(str(data.get("task_id")))
        if story is not None:
            usage = data.get("usage")
            story.progress(
                str(data.get("description") or ""), usage if isinstance(usage, dict) else None
            )

    def _ended(self, message: TaskNotificationMessage) -> None:
        task = self._long.known.of(message.task_id)
        if task is not None and task.background and task.is_told(message.status):
            end = self._translation.task_end(message.status, message.summary, None, task.id)
            self._own.task_ended(task.call, task.describe_end(end))
