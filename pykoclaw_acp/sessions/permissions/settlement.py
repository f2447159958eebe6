"""Settling a permission request: the decision is written down, then acted upon."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from uuid import uuid4

import structlog

from pykoclaw_acp.errors import StoreClosed
from pykoclaw_acp.model.permissions import Decision, RequestOutcome
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.permissions import decisions, words
from pykoclaw_acp.sessions.permissions.parked_answers import ParkedAnswers
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.ports import PermissionStore, Workers
from pykoclaw_acp.system import disks

log: Final = structlog.get_logger()


class Settler:
    """Settles the requests of one session. Each method returns whether the decision is in the
    database.

    `close` is called when nobody is to be asked any more, `claim` with the turn whose user chose,
    and `enqueue` with the turn that tells Claude the decision on a parked request. `cwd`: the
    session's directory.
    """

    def __init__(
        self,
        session_id: str,
        store: PermissionStore,
        workers: Workers,
        parked_answers: ParkedAnswers,
        *,
        close: Callable[[PendingRequest], None],
        claim: Callable[[str], None],
        enqueue: Callable[[Turn], None],
        cwd: Callable[[], str],
    ) -> None:
        self._session_id = session_id
        self._cwd = cwd
        self._store = store
        self._workers = workers
        self._parked_answers = parked_answers
        self._close = close
        self._claim = claim
        self._enqueue = enqueue

    async def settle(self, pending: PendingRequest, decision: Decision) -> bool:
        """Write down the decision and act upon it; raises StoreClosed."""
        if pending.request.workspaces:
            return await self._settle_trust(pending, decision)
        if pending.parking is not None:
            return await self._settle_parked(pending, decision)
        return await self._settle_held(pending, decision)

    async def _directory(self) -> str:
        """The session's directory without symbolic links: where its rules last."""
        cwd = self._cwd()
        if not cwd:
            return ""
        with contextlib.suppress(TimeoutError):
            return await disks.call(cwd, partial(os.path.realpath, cwd))
        return cwd

    async def _settle_held(self, pending: PendingRequest, decision: Decision) -> bool:
        """Tell the worker that waits; a decision that could not be written down counts as none."""
        request = pending.request
        settlement = decisions.settlement(request, decision, await self._directory())
        recorded = await _is_done(self._store.settle(settlement, pending.answers))
        if not recorded:
            decision = Decision(RequestOutcome.UNRECORDED)
        self._close(pending)
        with contextlib.suppress(ConnectionError):
            await self._workers.send(
                self._session_id, decisions.to_worker(pending.epoch, request, decision)
            )
        return recorded

    async def _settle_trust(self, pending: PendingRequest, decision: Decision) -> bool:
        """Trust the directories, or do not; whoever chooses stands behind the prompt that waits."""
        request = pending.request
        chosen = decisions.is_choice(request, decision)
        trusts = chosen and decision.option == decisions.ALLOW_ALWAYS
        refuses = chosen and decision.option == decisions.REJECT_ONCE
        trusted = request.workspaces if trusts else ()
        without = () if trusts or refuses else request.workspaces
        settlement = decisions.settlement(request, decision)
        recorded = await _is_done(self._store.settle_workspaces(settlement, trusted, without))
        self._close(pending)
        if chosen:
            self._claim(request.turn_id)
        return recorded

    async def _settle_parked(self, pending: PendingRequest, decision: Decision) -> bool:
        """Queue a turn that tells Claude the decision, which counts when Claude makes the identical
        call.
        """
        request = pending.request
        turn = Turn(
            str(uuid4()),
            self._session_id,
            words.prompt_with_answer(request, decision),
            unattended=True,
        )
        settlement = decisions.settlement(request, decision, await self._directory())
        recorded = await _is_done(self._store.answer_parked(settlement, turn))
        self._close(pending)
        if recorded:
            if not request.questions:  # which are answered, and not asked again
                self._parked_answers.add(turn, request, decision)
            self._enqueue(turn)
        return recorded


async def _is_done(recording: Awaitable[None]) -> bool:
    """Whether it could be written down; raises StoreClosed."""
    try:
        await recording
    except StoreClosed:
        raise
    except Exception:
        log.exception("The answer could not be recorded", action="permission_not_recorded")
        return False
    return True
