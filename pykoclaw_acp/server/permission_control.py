"""The handlers of `_pykoclaw.dev/questions/…`: pending permission requests, and their answers."""

from __future__ import annotations

from typing import Any

import msgspec

from pykoclaw_acp.model.permissions import PermissionRequest, RequestPolicy
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
from pykoclaw_acp.store import summaries
from pykoclaw_acp.store.database import Database


class PermissionControl:
    """Permission requests of all sessions, also of those that are not loaded."""

    def __init__(self, sessions: Sessions, database: Database) -> None:
        self._sessions = sessions
        self._database = database

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
        if not params.whole:
            return [info for info, _ in waiting]
        return [await self._whole(info, ask) for info, ask in waiting]

    async def _whole(self, info: QuestionInfo, ask: PermissionRequest) -> QuestionInfo:
        found = await summaries.summary(self._database, info.session)
        of_session = {} if found is None else {"cwd": found.cwd, "session_title": found.title}
        return msgspec.structs.replace(info, **whole(ask), **of_session)

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
            (
                QuestionInfo(
                    id=one.request.ask_id,
                    session=one.session_id,
                    title=one.request.title,
                    always=one.request.always is not None,
                    asked_at=one.asked_at,
                    deadline=one.deadline,
                    parked=one.policy == RequestPolicy.PARKED,
                ),
                one.request,
            )
            for one in await self._sessions.requests.list_pending()
            if one.request.ask_id.startswith(prefix)
        ]
