"""The SDK's callbacks for tool permissions and MCP elicitations: each sends a request to the daemon
and waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from claude_agent_sdk import (
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Answer, AskWithdrawn, EventFrame
from pykoclaw_acp.model.permissions import Form, PermissionRequest
from pykoclaw_acp.translation import diffs, texts, tools
from pykoclaw_acp.translation.translator import Translation
from pykoclaw_acp.worker import deciding, rules, whole
from pykoclaw_acp.worker.sdk_private import CANCEL


class PermissionCallbacks:
    """Callbacks of one worker, and those of their requests that are pending.

    `calls` has the tool calls as they are shown; `reported` waits until one was reported to the
    daemon, `turn` gives the turn that runs, if one does.
    """

    def __init__(
        self,
        epoch: int,
        put: Callable[[PermissionRequest | AskWithdrawn | EventFrame], None],
        calls: Translation,
        reported: Callable[[str, str, dict[str, Any]], Awaitable[str]],
        turn: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._epoch = epoch
        self._put = put
        self._calls = calls
        self._reported = reported
        self._turn = turn
        self._pending: dict[str, asyncio.Future[Answer]] = {}
        self.named: Callable[[str, str | None], str] = lambda call, _: call
        """Gives the id by which a call is shown, of Claude itself or of this subagent."""
        self.former_mode: Callable[[], Awaitable[str]] = deciding.no_mode
        """Gives the mode to which the approval of a plan may lead back."""
        self.links = False
        """Whether a client is there that can open a page."""
        self.lasting = False
        """Whether rules may be kept for later sessions."""

    @property
    def pending(self) -> list[str]:
        """Ids of the requests that are not answered."""
        return list(self._pending)

    async def can_use_tool(
        self, name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        """The SDK's `can_use_tool`; waits for the answer without a limit."""
        tool_id = self.named(context.tool_use_id or str(uuid4()), context.agent_id)
        turn_id = await self._reported(tool_id, name, arguments)
        arguments = deciding.presented(name, arguments, self._calls.decided.get(tool_id))
        if whole.too_large(arguments):
            return PermissionResultDeny(message=whole.TOO_LARGE)
        updates = rules.for_session(context.suggestions, self._calls.cwd)
        always = rules.describe(updates, self._calls.mcp)
        parent, _ = self._calls.caller(tool_id)
        content = await whole.shown(name, arguments, self._calls.cwd, always, self._calls.added)
        self._calls.note_asked(tool_id, arguments, diffs.asked_about(content))
        request = PermissionRequest(
            epoch=self._epoch,
            ask_id=str(uuid4()),
            turn_id=turn_id,
            tool_call_id=tool_id,
            title=self._calls.title_of_question(tool_id, name, arguments),
            tool_kind=tools.kind(name),
            tool=name,
            always=always,
            content=(*content, *whole.reason(context.decision_reason)),
            input=arguments,
            locations=tools.locations(name, arguments, self._calls.cwd),
            call=fingerprint(name, arguments),
            rules=rules.lasting(updates) if self.lasting else (),
            parent_id=parent,
            mode=rules.only_mode(updates),
        )
        request = deciding.special(request, arguments)
        if request.plan:
            request = replace(request, former=await self.former_mode())
        result = deciding.result(request, arguments, await self._request(request), updates)
        if isinstance(result, PermissionResultAllow):
            for event in self._calls.allowed(tool_id):
                self._put(EventFrame(epoch=self._epoch, turn_id=turn_id, event=event))
        return result

    async def elicit(self, form: Form) -> dict[str, Any]:
        """The result of an MCP elicitation; `cancel` outside of a turn, and for a page that no
        client can open, since nobody is asked then.
        """
        if form.url is not None and not self.links:
            return CANCEL
        turn_id = await self._turn()
        return CANCEL if turn_id is None else await self.ask(form, turn_id)

    async def ask(self, form: Form, turn_id: str) -> dict[str, Any]:
        """The result of a form of this turn, which may have ended."""
        answer = await self._request(
            PermissionRequest(
                epoch=self._epoch,
                ask_id=str(uuid4()),
                turn_id=turn_id,
                tool_call_id="",
                title=texts.one_line(f"{form.server} asks: {form.message}", 160),
                tool_kind="other",
                form=form,
            )
        )
        if answer.decision == "accept":
            filled = {} if form.url is not None else {"content": answer.content or {}}
            return {"action": "accept", **filled}
        return {"action": "decline"} if answer.decision == "decline" else CANCEL

    async def _request(self, request: PermissionRequest) -> Answer:
        """Send the request and wait for its answer; withdraw it when cancelled."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[request.ask_id] = future
        self._put(request)
        try:
            return await future
        except asyncio.CancelledError:
            self._put(AskWithdrawn(epoch=self._epoch, ask_id=request.ask_id))
            raise
        finally:
            self._pending.pop(request.ask_id, None)

    def resolve(self, answer: Answer) -> None:
        """Pass an answer to the callback that waits for it; ignored if none does."""
        future = self._pending.get(answer.ask_id)
        if future is not None and not future.done():
            future.set_result(answer)


def fingerprint(name: str, arguments: dict[str, Any]) -> str:
    """SHA-256 of a tool call with all of its arguments."""
    return hashlib.sha256(json.dumps([name, arguments], sort_keys=True).encode()).hexdigest()
