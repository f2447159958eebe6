"""A permission request as a client can be asked it: by `session/request_permission`, by a form, or
by several requests in a row, all under ids that begin with that of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pykoclaw_acp.model import questions as answering
from pykoclaw_acp.model.client_traits import ClientTraits
from pykoclaw_acp.model.permissions import REASON, PermissionRequest
from pykoclaw_acp.model.questions import ANSWERS
from pykoclaw_acp.protocol import jsonrpc, permissions, questions
from pykoclaw_acp.protocol.client_requests import (
    ElicitationResult,
    PermissionOutcome,
    PermissionResult,
    RequestPermission,
)
from pykoclaw_acp.server.client_requests import ClientRequests
from pykoclaw_acp.tasks import Tasks

OWN_REASON: Final = "pykoclaw.dev/reason"
"""Key of a refusal's reason in the `_meta` of a client's outcome."""

PERMISSION: Final = "session/request_permission"
ELICITATION: Final = "elicitation/create"
_ACCEPT: Final = "accept"
_SELECTED: Final = "selected"
MOST_BEGUN: Final = 100  # requests whose answers so far are kept


class PermissionRequests:
    """Asks one client; `say` shows it a text that is no part of the log, under a message id."""

    def __init__(
        self, requests: ClientRequests, say: Callable[[str, str, str], Awaitable[None]]
    ) -> None:
        self.forms = False
        """Whether the client shows forms."""
        self._requests = requests
        self._say = say
        self.shown: set[str] = set()
        """Requests whose text the client has."""
        # By request, what was chosen of each question so far; of the last one, it may be, not all
        self._chosen: dict[str, list[list[str]]] = {}
        self._running: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._tasks = Tasks()

    async def ask(
        self, session_id: str, request: PermissionRequest, traits: ClientTraits
    ) -> dict[str, Any]:
        """Ask the client, and return its answer (ACP's `RequestPermissionResponse`). A client that is
        asked again, as after a load or when it was absent, gets what it has not answered yet once
        more; its earlier answers count.
        """
        ask_id = request.ask_id
        if (running := self._running.get(ask_id)) is not None:
            await self._requests.repeat(ask_id)
        else:
            running = self._tasks.start(self._ask(session_id, request, traits), name="ask")
            self._running[ask_id] = running
            running.add_done_callback(lambda _: self._running.pop(ask_id))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])  # another request must not overtake the withdrawal
            raise

    async def _ask(
        self, session_id: str, request: PermissionRequest, traits: ClientTraits
    ) -> dict[str, Any]:
        if request.form is not None:
            form = permissions.mcp_form(session_id, request.ask_id, request.form)
            result = await self._fill_in(request.ask_id, form)
            return {"action": result.action, "content": result.content}
        if request.questions:
            if self.forms:
                return await self._ask_by_form(session_id, request)
            await self._show(session_id, request, traits)
            return await self._ask_in_turn(session_id, request, traits)
        await self._show(session_id, request, traits)
        return await self._ask_permission(session_id, request)

    async def _ask_permission(self, session_id: str, request: PermissionRequest) -> dict[str, Any]:
        params = permissions.permission(session_id, request, reasons=self.forms)
        outcome = await self._select(request.ask_id, params)
        option = outcome.option_id
        said = (outcome.meta or {}).get(OWN_REASON)
        wants = option == permissions.REJECT_WITH_REASON or (
            request.plan and option == "reject_once"
        )
        if outcome.outcome == _SELECTED and wants and self.forms and not isinstance(said, str):
            form = questions.reason_form(session_id, request)
            result = await self._fill_in(f"{request.ask_id}.reason", form)
            content = result.content or {} if result.action == _ACCEPT else {}
            said = content.get(questions.REASON_FIELD)
        if option == permissions.REJECT_WITH_REASON:
            option = "reject_once"
        return {"outcome": outcome.outcome, "optionId": option, REASON: said}

    async def _ask_by_form(self, session_id: str, request: PermissionRequest) -> dict[str, Any]:
        result = await self._fill_in(request.ask_id, questions.form(session_id, request))
        if result.action != _ACCEPT:
            return {"action": result.action}
        return _answered(request, questions.given(request.questions, result.content or {}))

    async def _ask_in_turn(
        self, session_id: str, request: PermissionRequest, traits: ClientTraits
    ) -> dict[str, Any]:
        """Ask one question after the other; of one that takes several choices, one choice after the
        other.
        """
        given = self._chosen.setdefault(request.ask_id, [[]])
        if len(self._chosen) > MOST_BEGUN:
            del self._chosen[next(iter(self._chosen))]
        for at in range(len(given) - 1, len(request.questions)):
            one, chosen = request.questions[at], given[at]
            while True:
                params = questions.poll(
                    session_id, request, at, chosen, chat_first=traits.approves_by_itself
                )
                outcome = await self._select(f"{request.ask_id}.{at}.{len(chosen)}", params)
                if outcome.outcome != _SELECTED:
                    return {"action": "cancel"}
                option = outcome.option_id or ""
                if option == questions.IN_CHAT.option_id:
                    self._chosen.pop(request.ask_id, None)
                    return {"action": "decline", "optionId": option}
                label = questions.choice(one, option)
                if label is not None and label not in chosen:
                    chosen.append(label)
                elif option != questions.DONE or not chosen:
                    return {"action": "_not_offered"}
                if option == questions.DONE or not one.multiple or len(chosen) == len(one.options):
                    break
            given.append([])
        self._chosen.pop(request.ask_id, None)
        return _answered(request, [answering.joined(chosen) for chosen in given[:-1]])

    async def _show(
        self, session_id: str, request: PermissionRequest, traits: ClientTraits
    ) -> None:
        """Say a plan, questions, what was found in directories, or a call whose title is cut to a client
        whose user sees no more of a request than its title; once.
        """
        if not traits.titles_only or request.ask_id in self.shown:
            return
        text = permissions.text_beside(request)
        if request.questions:
            text = answering.described(request.questions)
        if text:
            self.shown.add(request.ask_id)
            await self._say(session_id, f"{request.ask_id}-shown", f"\n\n{text}\n\n")

    async def _select(self, message_id: str, params: RequestPermission) -> PermissionOutcome:
        raw = await self._requests.request(message_id, PERMISSION, params)
        return jsonrpc.decode_params(raw, PermissionResult).outcome

    async def _fill_in(self, message_id: str, form: Any) -> ElicitationResult:
        raw = await self._requests.request(message_id, ELICITATION, form)
        return jsonrpc.decode_params(raw, ElicitationResult)


def _answered(request: PermissionRequest, given: list[str]) -> dict[str, Any]:
    return {
        "action": _ACCEPT,
        "content": {ANSWERS: answering.answers(request.questions, given)},
    }
