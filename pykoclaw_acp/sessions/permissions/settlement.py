"""Settling a permission request: the decision is written down before anything follows from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import uuid4

import structlog

from pykoclaw_acp.errors import DamageMet, StoreClosed
from pykoclaw_acp.model.permissions import Decision, RequestOutcome, Settlement
from pykoclaw_acp.model.scheduled import run_key
from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.sessions.permissions import decisions, words
from pykoclaw_acp.sessions.permissions.parked_answers import ParkedAnswers
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.permissions.settled import Settled
from pykoclaw_acp.sessions.ports import PermissionStore
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.system import disks
from pykoclaw_acp.tasks import Tasks

_UNRECORDED: Final = Decision(RequestOutcome.UNRECORDED)

log: Final = structlog.get_logger()


class Settler:
    """Settles the requests of one session: writes each decision down, and says what follows from
    it.
    """

    def __init__(
        self, state: SessionState, store: PermissionStore, parked_answers: ParkedAnswers
    ) -> None:
        self._state = state
        self._store = store
        self._parked_answers = parked_answers
        self._tasks = Tasks()
        self.answers: dict[str, Turn] = {}
        """Turns that tell Claude the answer to a parked request, by the turn that had asked."""

    async def settle(self, pending: PendingRequest, decision: Decision) -> Settled:
        """Write down the decision; raises StoreClosed."""
        offered = decisions.still_offered(pending.request, self._state.record.options)
        if offered != pending.request and decision.option == decisions.ALLOW_FORMER:
            decision = replace(decision, option=decisions.ALLOW_ONCE)
        if pending.request.workspaces:
            settled = await self._settle_trust(pending, decision)
        elif pending.parking:
            settled = await self._settle_parked(pending, decision)
        else:
            settled = await self._settle_held(pending, decision)
        return settled if settled.recorded else settled._replace(decision=_UNRECORDED)

    async def _directory(self) -> str:
        """The session's directory without symbolic links: where its rules last."""
        cwd = self._state.record.cwd or ""
        if not cwd:
            return ""
        with contextlib.suppress(TimeoutError):
            return await disks.call(cwd, partial(os.path.realpath, cwd))
        return cwd

    async def _settle_held(self, pending: PendingRequest, decision: Decision) -> Settled:
        """For the worker that waits, a decision that could not be written down counts as none."""
        request = pending.request
        settlement = decisions.settlement(request, decision, await self._directory())
        recorded = await _is_done(self._store.settle(settlement, pending.answers))
        if not recorded:
            decision = _UNRECORDED
            self._tasks.start(self._give_up(request.ask_id))
        return Settled(decision, recorded, decisions.to_worker(pending.epoch, request, decision))

    async def _give_up(self, ask_id: str) -> None:
        """No longer list as pending what the worker does not wait for any more."""
        given_up = Settlement(ask_id, RequestOutcome.INTERRUPTED)
        with contextlib.suppress(StoreClosed, DamageMet):  # the next daemon does
            await until_done(
                lambda: self._store.settle(given_up),
                "A permission request cannot be closed",
                final=(DamageMet,),
            )

    async def _settle_trust(self, pending: PendingRequest, decision: Decision) -> Settled:
        """Trust the directories, or do not; a person who chooses stands behind the prompt that waits."""
        request = pending.request
        if pending.trusted:  # that says nothing of the prompt
            rows = self._store.settle(decisions.settlement(request, decision))
            return Settled(decision, await _is_done(rows))
        chosen = decisions.is_choice(request, decision)
        trusts = chosen and decision.option == decisions.ALLOW_ALWAYS
        refuses = chosen and decision.option == decisions.REJECT_ONCE
        trusted = request.workspaces if trusts else ()
        without = () if trusts or refuses else request.workspaces
        settlement = decisions.settlement(request, decision)
        recorded = await _is_done(self._store.settle_workspaces(settlement, trusted, without))
        return Settled(decision, recorded, claims=chosen and decision.by != decisions.BY_POLICY)

    async def _settle_parked(self, pending: PendingRequest, decision: Decision) -> Settled:
        """A turn tells Claude the decision, which counts when Claude makes the identical call."""
        request = pending.request
        turn_id = str(uuid4())
        turn = Turn(
            turn_id,
            self._state.id,
            words.prompt_with_answer(request, decision),
            PromptKeys(request=run_key(turn_id)),  # by which a run that goes on with it finds it
            unattended=True,
            given=pending.given,
        )
        settlement = decisions.settlement(request, decision, await self._directory())
        if not await _is_done(self._store.answer_parked(settlement, turn)):
            return Settled(decision, recorded=False)
        if request.turn_id not in self.answers:
            self._keep(request.turn_id, turn)
        if not request.questions:  # which are answered, and not asked again
            self._parked_answers.add(turn, request, decision)
        return Settled(decision, recorded=True, turn=turn)

    def _keep(self, asked: str, turn: Turn) -> None:
        """Keep the turn for the run whose turn has asked: it may look for it when it has ended, and
        then needs neither its content nor the secrets of who has decided.
        """
        self.answers[asked] = turn

        def lighten(_: object) -> None:
            self.answers[asked] = replace(turn, content=[], given=None)

        turn.ended.add_done_callback(lighten)


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
