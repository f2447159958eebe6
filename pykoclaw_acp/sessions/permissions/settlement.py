"""How a question is settled: its outcome is written down, then whoever waits for it is told.

All ways return whether the outcome is in the database.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import structlog

from pykoclaw_acp.errors import StoreClosed
from pykoclaw_acp.model.permissions import Decision, RequestOutcome
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.parked_answers import ParkedAnswers
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.ports import PermissionStore, Workers

if TYPE_CHECKING:
    from pykoclaw_acp.sessions.session import Session

log: Final = structlog.get_logger()


class Settler:
    """Settles questions of one session; `close` is called as soon as nobody is to be asked any more."""

    def __init__(
        self,
        session: Session,
        journal: PermissionStore,
        workers: Workers,
        grants: ParkedAnswers,
        close: Callable[[PendingRequest], None],
    ) -> None:
        self._session = session
        self._journal = journal
        self._workers = workers
        self._grants = grants
        self._close = close

    async def held(self, one: PendingRequest, verdict: Decision) -> bool:
        """The worker that asks is told."""
        recorded = await _is_done(self._journal.settle(decisions.settled(one.request.ask_id, verdict), one.grant))
        if not recorded:
            verdict = Decision(RequestOutcome.UNRECORDED)
        self._close(one)
        with contextlib.suppress(ConnectionError):
            await self._workers.send(self._session.id, decisions.answer(one.epoch, one.request, verdict))
        return recorded

    async def about_trust(self, one: PendingRequest, verdict: Decision) -> bool:
        """A prompt waits for it. Who chooses stands behind that prompt."""
        chosen = decisions.is_choice(one.request, verdict)
        trusted = one.request.workspaces if chosen and verdict.option == decisions.ALLOW_ALWAYS else ()
        settled = decisions.settled(one.request.ask_id, verdict)
        recorded = await _is_done(self._journal.settle_workspaces(settled, trusted))
        self._close(one)
        if chosen:
            self._session.claim(one.request.turn_id)
        return recorded

    async def parked(self, one: PendingRequest, verdict: Decision) -> bool:
        """A turn goes on with the answer, which holds for the very same call when Claude makes it again."""
        turn = Turn(str(uuid4()), self._session.id, decisions.going_on(one.request, verdict), unattended=True)
        recorded = await _is_done(self._journal.answer_parked(decisions.settled(one.request.ask_id, verdict), turn))
        self._close(one)
        if recorded:
            self._grants.add(turn, one.request, verdict)
            self._session.enqueue(turn)
        return recorded


async def _is_done(recording: Awaitable[None]) -> bool:
    """Whether the outcome could be written down; raises StoreClosed."""
    try:
        await recording
    except StoreClosed:
        raise
    except Exception:
        log.exception("The answer could not be recorded", action="permission_not_recorded")
        return False
    return True
