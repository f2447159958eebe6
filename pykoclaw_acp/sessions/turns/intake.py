"""Recognising prompts: each becomes a turn, or joins the one that it was before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import (
    InvalidRequest,
    SessionNotFound,
    StoreUnavailable,
    StoreUncertain,
    TurnFailed,
)
from pykoclaw_acp.model.turns import SessionRecord, Turn, TurnState
from pykoclaw_acp.sessions.ports import TurnJournal
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.sessions.turns.deduplication import Deduplication
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.sessions.turns.unclaimed import Unclaimed
from pykoclaw_acp.tasks import Tasks

NOT_OPEN: Final = "The session is not open. Open it again in your client, and then send this again."


@contextlib.contextmanager
def looking_back(*, resent: bool) -> Iterator[None]:
    """Raise StoreUncertain where the database cannot be read: an earlier daemon may have accepted
    a prompt that is sent again.
    """
    try:
        yield
    except StoreUnavailable as error:
        if not resent:
            raise
        raise StoreUncertain(error.state, error.reason) from error


class Intake:
    """Takes the prompts of one session, over all connections one at a time: so a re-sent prompt
    is recognised.
    """

    def __init__(
        self,
        record: SessionRecord,
        deduplication: Deduplication,
        unclaimed: Unclaimed,
        queue: TurnQueue,
        journal: TurnJournal,
    ) -> None:
        self.lock = asyncio.Lock()
        self.ends = False
        """Whether the session is being deleted: no new prompt is accepted any more."""
        self._record = record
        self._deduplication = deduplication
        self._unclaimed = unclaimed
        self._queue = queue
        self._journal = journal
        self._tasks = Tasks()

    def __bool__(self) -> bool:
        """Whether a prompt is being accepted."""
        return bool(self._tasks)

    async def finish(self, accepting: Coroutine[Any, Any, Turn]) -> Turn:
        """The turn that a call's prompt is; a call that is given up on the way leaves the turn to run
        without it.
        """
        task = self._tasks.start(accepting)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._lose_call)
            raise

    @contextlib.asynccontextmanager
    async def recognised(
        self, turn: Turn, author: Subscription, *, joins: bool
    ) -> AsyncIterator[Turn]:
        """Yield the turn of this prompt: the given one if it is new (accept it within the context),
        else the existing one. Raises as Session.accept.
        """
        async with self.lock:
            with looking_back(resent=turn.resent):
                find = self._deduplication.find(turn.keys, turn.client or "", author.opened_at)
                known = await find or turn
                if known is turn and joins:
                    known = await self._in_journal(turn)
            if known is turn and (self._record.closed or self._record.cwd is None):
                raise InvalidRequest(NOT_OPEN)
            if known is turn:
                self._queue.require_room(turn)
            author.own.add(known.turn_id)
            if known is turn:
                self._unclaimed.settle_older(turn)
            yield known
            self._deduplication.add_call(known)
            self._unclaimed.claim(known)

    @contextlib.asynccontextmanager
    async def recognised_unattended(self, turn: Turn) -> AsyncIterator[Turn]:
        """Yield the turn of a prompt that no client waits for: the given one if it is new (accept it
        within the context), else the existing one. Raises as Session.accept_unattended.
        """
        async with self.lock:
            known = await self._deduplication.find(turn.keys, turn.client or "")
            if known is None and self.ends:
                raise SessionNotFound(self._record.session_id)
            if known is None:
                self._queue.require_room(turn)
            yield known or turn
            if known is not None:
                known.given = known.given or turn.given  # an earlier daemon's is not stored
                if turn.detached and not known.alone and known.state == TurnState.QUEUED:
                    await self._journal.detach(known.turn_id)  # for a daemon that finds it waiting
                    known.detached = True
                self._unclaimed.claim(known)

    def is_forgotten(self, turn: Turn) -> bool:
        """Whether a prompt that waits in the journal is not in the queue."""
        waits = turn.state == TurnState.QUEUED and not turn.ended.done()
        return waits and turn not in self._queue.turns

    async def _in_journal(self, turn: Turn) -> Turn:
        """The turn of a prompt that was accepted and is not in memory, as after a shortage of it: one
        that was not begun yet. Raises TurnFailed if it was begun, or the journal does not have it.
        """
        known = await self._journal.find_unfinished(self._record.session_id, turn.keys)
        if known is None:
            raise _unfollowed(outcomes.PROMPT_LOST, ErrorKind.RESTORED)
        if known.state != TurnState.QUEUED:
            raise _unfollowed(outcomes.PROMPT_BEGUN, ErrorKind.INTERNAL)
        known.helper = turn.helper
        return known

    def _lose_call(self, accepting: asyncio.Task[Turn]) -> None:
        if not accepting.cancelled() and accepting.exception() is None:
            self._deduplication.lose_call(accepting.result())


def _unfollowed(message: str, kind: ErrorKind) -> TurnFailed:
    """The error of a prompt that may have been run, or still runs."""
    data = {"errorKind": kind, "turnState": TurnState.UNKNOWN, "retryable": False}
    return TurnFailed(message, data)
