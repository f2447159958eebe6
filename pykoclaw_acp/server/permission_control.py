"""The handlers of `_pykoclaw.dev/questions/…`: pending permission requests, and their answers."""

from __future__ import annotations

from typing import Any

import msgspec

from pykoclaw_acp.model.permissions import PermissionRequest, RequestPolicy, StoredRequest
from pykoclaw_acp.protocol.control.permissions import (
    Answered,
    AnswerParams,
    QuestionInfo,
    QuestionsParams,
)
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.command_client import given_by, whole
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.sessions.permissions import words
from pykoclaw_acp.sessions.permissions.all_requests import OPTIONS
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.workspace_words import DONE


class PermissionControl:
    """Permission requests of all sessions, also of those that are not loaded."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods."""
        return {
            "_pykoclaw.dev/questions/list": Method(
                QuestionsParams, self.list_all, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/questions/answer": Method(
                AnswerParams, self.answer, before_initialize=True
            ),
        }

    async def list_all(
        self,
        call: Call,  # noqa: ARG002
        params: QuestionsParams,
    ) -> list[QuestionInfo]:
        """The permission requests that are pending."""
        waiting = await self.pending(params.question)
        return [
            msgspec.structs.replace(info, **whole(ask)) if params.whole else info
            for info, ask in waiting
        ]

    async def answer(self, call: Call, params: AnswerParams) -> Answered:  # noqa: ARG002
        """Decide a pending permission request, as the operator says."""
        asked = await self._sessions.requests.decide(
            params.question,
            params.decision,
            "cli",
            params.reason,
            params.answers,
            given=given_by(params.environment),
        )
        option = OPTIONS[params.decision]
        if asked.request.workspaces:
            return Answered(done=DONE[option])
        return Answered(done=words.effect(asked.request, option, params.reason))

    async def pending(self, prefix: str = "") -> list[tuple[QuestionInfo, PermissionRequest]]:
        """Pending permission requests whose id begins with `prefix`."""
        return [
            (self._info(one), one.request)
            for one in await self._sessions.requests.list_pending()
            if one.request.ask_id.startswith(prefix)
        ]

    def _info(self, one: StoredRequest) -> QuestionInfo:
        session = self._sessions.live.get(one.session_id)
        return QuestionInfo(
            id=one.request.ask_id,
            session=one.session_id,
            title=one.request.title,
            always=one.request.always is not None,
            asked_at=one.asked_at,
            deadline=one.deadline,
            parked=one.policy == RequestPolicy.PARKED,
            cwd=None if session is None else session.record.cwd,
            session_title=None if session is None else session.record.title,
        )
