"""Accepting prompts: each becomes a turn, or joins the one that it was before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import InvalidRequest, SessionNotFound, TurnFailed
from pykoclaw_acp.model.turns import SessionRecord, Turn
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.sessions.turns.deduplication import Deduplication
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.sessions.turns.unclaimed import Unclaimed
from pykoclaw_acp.tasks import Tasks

NOT_OPEN: Final = "The session is not open. Open it with session/load or session/resume."


class Intake:
    """Accepts the prompts of one session, over all connections one at a time: so a re-sent prompt
    is recognised.

    `submit` writes a new turn down and queues it.
    """

    def __init__(
        self,
        record: SessionRecord,
        deduplication: Deduplication,
        unclaimed: Unclaimed,
        queue: TurnQueue,
        submit: Callable[[Turn], Awaitable[None]],
    ) -> None:
        self.lock = asyncio.Lock()
        self.ends = False
        """Whether the session is being deleted: no new prompt is accepted any more."""
        self._record = record
        self._deduplication = deduplication
        self._unclaimed = unclaimed
        self._queue = queue
        self._submit = submit
        self._tasks = Tasks()

    def __bool__(self) -> bool:
        """Whether a prompt is being accepted."""
        return bool(self._tasks)

    async def accept(self, turn: Turn, author: Subscription, *, joins: bool = False) -> Turn:
        """The turn that this prompt is: a new one, or the one that it was before if the prompt is
        sent again. `joins`: an earlier daemon had taken it: it is no new one.

        Raises TurnFailed if it were new and must not, InvalidParams for an idempotency key that
        stood at another prompt, InvalidRequest if the session was closed in the meantime,
        Overloaded if too much waits already. A call that is given up on the way leaves the turn to
        run without it.
        """
        accepting = self._tasks.start(self._accept(turn, author, joins=joins))
        try:
            return await asyncio.shield(accepting)
        except asyncio.CancelledError:
            accepting.add_done_callback(self._lose_call)
            raise

    async def _accept(self, turn: Turn, author: Subscription, *, joins: bool) -> Turn:
        async with self.lock:
            find = self._deduplication.find(turn.keys, turn.client or "", author.opened_at)
            known = await find or turn
            if known is turn and joins:
                raise TurnFailed(outcomes.PROMPT_LOST, {"errorKind": ErrorKind.RESTORED})
            if known is turn and (self._record.closed or self._record.cwd is None):
                raise InvalidRequest(NOT_OPEN)
            if known is turn:
                self._queue.require_room(turn)
            author.own.add(known.turn_id)
            if known is turn:
                self._unclaimed.drop_older(turn)
                await self._submit(turn)
            self._deduplication.add_call(known)
            self._unclaimed.claim(known)
        return known

    async def accept_unattended(self, turn: Turn) -> Turn:
        """Accept a prompt that runs whoever is there, also in a closed session; the turn that it
        was before, if it comes again.

        Raises InvalidParams for an idempotency key that stood at another prompt, Overloaded, and
        SessionNotFound if the session is being deleted.
        """
        return await asyncio.shield(self._tasks.start(self._accept_unattended(turn)))

    async def _accept_unattended(self, turn: Turn) -> Turn:
        async with self.lock:
            known = await self._deduplication.find(turn.keys, turn.client or "")
            if known is None and self.ends:
                raise SessionNotFound(self._record.session_id)
            if known is None:
                self._queue.require_room(turn)
                await self._submit(turn)
        return known or turn

    def _lose_call(self, accepting: asyncio.Task[Turn]) -> None:
        if not accepting.cancelled() and accepting.exception() is None:
            self._deduplication.lose_call(accepting.result())
