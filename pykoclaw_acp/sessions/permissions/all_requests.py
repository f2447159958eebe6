"""Pending requests of all sessions, for an operator who has none of them open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from pykoclaw_acp.errors import InvalidParams, InvalidRequest
from pykoclaw_acp.model.permissions import RequestPolicy, StoredRequest
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.protocol.control.decisions import OperatorDecision
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.broker import NOT_PENDING, Broker
from pykoclaw_acp.sessions.ports import PermissionStore
from pykoclaw_acp.sessions.session_environment import SessionEnvironment

OPTIONS: Final[dict[OperatorDecision, str]] = {
    "allow_once": decisions.ALLOW_ONCE,
    "allow_always": decisions.ALLOW_ALWAYS,
    "allow_lasting": decisions.ALLOW_LASTING,
    "allow_former": decisions.ALLOW_FORMER,
    "deny": decisions.REJECT_ONCE,
}


class RequestOwner(Protocol):
    """A session, as far as its requests are concerned."""

    permissions: Broker
    environment: SessionEnvironment


class AllRequests:
    """Lists and decides the requests of all sessions; `find` returns a session, `live` are those in
    memory, as all are that have a pending request which is not parked.
    """

    def __init__(
        self,
        find: Callable[[str], Awaitable[RequestOwner | None]],
        live: Mapping[str, RequestOwner],
        store: PermissionStore,
    ) -> None:
        self._find = find
        self._live = live
        self._store = store

    async def list_pending(self) -> list[StoredRequest]:
        """Pending requests, the oldest first, with what they offer now."""
        return [
            _offered(one, self._live.get(one.session_id))
            for one in await self._store.find_active()
            if one.outcome is None
        ]

    async def decide(
        self,
        prefix: str,
        decision: OperatorDecision,
        by: str,
        reason: str = "",
        answers: Sequence[str] = (),
        *,
        given: ClientEnvironment | None = None,
    ) -> StoredRequest:
        """Decide the pending request whose id begins with `prefix`; returns when that is in the
        database.

        `by` is who decides, for the row; `reason`: of a denial, for Claude; `answers`: to the
        questions of the request, in their order. A decision on a parked request starts a turn, with
        what is `given` if nobody has the session open. Raises InvalidParams for an id that is
        unknown or not unique, for an option that was not offered, for answers that do not fit, and
        for a form, which can only be denied; InvalidRequest if it is not pending any more, or if no
        worker could be started for that turn; StoreUnavailable while the database cannot be written.
        """
        self._store.require_writable()
        found = await self._store.find_by_prefix(prefix) if prefix else []
        if not found:
            raise InvalidParams(
                "No permission request has this id. List the pending ones to see their ids."
            )
        exact = [one for one in found if one.request.ask_id == prefix]
        wanted = exact or [one for one in found if one.outcome is None]
        if len(wanted) > 1:
            raise InvalidParams(
                f"{len(wanted)} pending requests have this prefix. Give more of the id."
            )
        one = (wanted or found)[0]
        session = None if one.outcome is not None else await self._find(one.session_id)
        if session is None:
            raise InvalidRequest(NOT_PENDING)
        one = _offered(one, session)
        made = decisions.by_operator(one.request, OPTIONS[decision], by, reason, answers)
        if one.policy == RequestPolicy.PARKED:
            session.environment.require(given)
        await session.permissions.decide(one.request.ask_id, made, given)
        return one


def _offered(one: StoredRequest, session: RequestOwner | None) -> StoredRequest:
    if session is None:
        return one
    return replace(one, request=session.permissions.still_offered(one.request))
