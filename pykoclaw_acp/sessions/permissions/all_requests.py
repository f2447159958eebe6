"""Questions of all sessions, answered by somebody who has none of these open, as from the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from pykoclaw_acp.errors import InvalidParams, InvalidRequest
from pykoclaw_acp.model.permissions import StoredRequest
from pykoclaw_acp.protocol.control import OperatorDecision
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.broker import NOT_WAITING
from pykoclaw_acp.sessions.ports import PermissionStore

if TYPE_CHECKING:
    from pykoclaw_acp.sessions.session import Session

OPTIONS: Final[dict[OperatorDecision, str]] = {
    "allow_once": decisions.ALLOW_ONCE,
    "allow_always": decisions.ALLOW_ALWAYS,
    "deny": decisions.REJECT_ONCE,
}


class AllRequests:
    """`find` gives a session by its id."""

    def __init__(self, find: Callable[[str], Awaitable[Session | None]], journal: PermissionStore) -> None:
        self._find = find
        self._journal = journal

    async def open(self) -> list[StoredRequest]:
        """Those that wait for an answer, the oldest first."""
        return [one for one in await self._journal.questions() if one.outcome is None]

    async def answer(self, question: str, decision: OperatorDecision, by: str) -> StoredRequest:
        """Answer the open question whose id begins so; when this returns the answer is in the database.

        `by` is who answers, for the row. An answer to a parked question starts a turn. Raises InvalidParams for an id
        that is unknown or not unique, for an option that was not offered and for a form, which can only be denied;
        InvalidRequest if it waits no more; StoreUnavailable while the database cannot be written.
        """
        self._journal.require_writable()
        found = await self._journal.matching(question) if question else []
        if not found:
            raise InvalidParams("There is no question with this id. List those that wait to see their ids.")
        exact = [one for one in found if one.request.ask_id == question]
        wanted = exact or [one for one in found if one.outcome is None]
        if len(wanted) > 1:
            raise InvalidParams(f"{len(wanted)} open questions have ids that begin so. Give more of the id.")
        one = (wanted or found)[0]
        session = None if one.outcome is not None else await self._find(one.session_id)
        if session is None:
            raise InvalidRequest(NOT_WAITING)
        await session.permissions.answer(one.request.ask_id, decisions.of_command(one.request, OPTIONS[decision], by))
        return one
