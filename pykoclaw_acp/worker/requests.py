"""Requests of the daemon about tasks, files and the title, which the CLI carries out."""

from __future__ import annotations

from typing import Any, Final

import structlog
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.channel.requests import (
    MakeTitle,
    RewindFiles,
    StopSubagents,
    WorkerReply,
    WorkerRequest,
)
from pykoclaw_acp.translation.long_calls import LongCalls
from pykoclaw_acp.worker import sdk_private
from pykoclaw_acp.worker.interrupts import Interrupts

NO_TASK: Final = "No subagent and no command in the background runs under this tool call."
BY_USER: Final = "Stopped by the user."

log: Final = structlog.get_logger()


class TaskRequests:
    """Carries requests out; `calls` has the tasks that run, by their tool calls."""

    def __init__(self, calls: LongCalls, interrupts: Interrupts) -> None:
        self._calls = calls
        self._interrupts = interrupts

    async def carry_out(
        self, client: ClaudeSDKClient | None, request: WorkerRequest
    ) -> WorkerReply:
        """Carry out the request; never raises."""
        try:
            if client is None:
                raise RuntimeError("Claude is not ready.")
            result = await self._ask(client, request)
        except Exception as error:  # noqa: BLE001  it is the daemon's to say
            why = str(error) or repr(error)
            log.info("A request was refused", action="request_refused", error=why)
            return WorkerReply(epoch=request.epoch, request=request.request, error=why)
        return WorkerReply(epoch=request.epoch, request=request.request, result=result)

    async def stop_subagents(self, client: ClaudeSDKClient, why: str = "") -> None:
        """Stop the subagents that run in the background; `why`: if the user did not want it."""
        if self._calls.known.subagents():
            await self.interrupt(client, why)

    async def interrupt(self, client: ClaudeSDKClient, why: str = "") -> bool:
        """Interrupt what runs, and with it the subagents; whether the CLI has answered."""
        for one in self._calls.known.subagents():
            one.stopped = why or BY_USER
        # After `stop_task`, Claude would go on by itself
        return await self._interrupts.send(client)

    async def _ask(self, client: ClaudeSDKClient, request: WorkerRequest) -> dict[str, Any]:
        if isinstance(request, RewindFiles):
            body = {"subtype": "rewind_files", "user_message_id": request.turn_id}
            return await sdk_private.control(client, body | {"dry_run": request.dry})
        if isinstance(request, MakeTitle):
            body = {"subtype": "generate_session_title", "description": request.words}
            return await sdk_private.control(client, body | {"persist": True})
        if isinstance(request, StopSubagents):
            await self.stop_subagents(client, request.why)
            return {}
        task = self._calls.known.calls.get(request.tool_call_id)
        if task is None or not task.runs:
            raise LookupError(NO_TASK)
        with self._calls.stopped(request.tool_call_id, request.why or BY_USER):
            return await sdk_private.control(client, {"subtype": "stop_task", "task_id": task.id})
