"""Prompts that a new daemon found waiting: each runs only if somebody stands behind it.

That is its own front, which sends it again, or has had the answer to one that steers and comes
back with the session open; a command that waits for it or whoever else sends it again; a client of
its name that loads or resumes the session, if it is the process that sent it or that has ended; or
that process or its successor, which comes back with the session open. All this within a window,
which begins when the daemon does and, behind a turn that it adopted, once more when that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

import structlog

from pykoclaw_acp.model.turns import SessionRecord, Turn
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class Unclaimed:
    """Unclaimed prompts of one session; `window` is in seconds."""

    def __init__(self, record: SessionRecord, window: float) -> None:
        self._record = record
        self._window = window
        self._adopted: Turn | None = None
        self._claims: dict[Turn, asyncio.Future[bool]] = {}
        self._tasks = Tasks()

    def __bool__(self) -> bool:
        """Whether a prompt is held back."""
        return bool(self._claims)

    def start_behind(self, adopted: Turn) -> None:
        """Begin the window once more when this turn of another daemon has ended."""
        self._adopted = adopted

    def add(self, turn: Turn) -> None:
        """Hold back a prompt that another daemon accepted, unless nobody was ever to come back for
        it.
        """
        if turn.alone or turn.is_ours:
            return
        self._claims[turn] = asyncio.get_running_loop().create_future()
        if not self._tasks:
            self._tasks.start(self._expire())

    def claim(self, turn: Turn) -> None:
        """Let the prompt run: somebody stands behind it."""
        self._settle(turn, claimed=True)

    def claim_by_id(self, turn_id: str) -> None:
        """Let the prompt with this id run if it waits: somebody stands behind it."""
        for turn in list(self._claims):
            if turn.turn_id == turn_id:
                self._settle(turn, claimed=True)

    def claim_for(
        self, name: str, is_author: Callable[[str | None], bool], front: str | None = None
    ) -> None:
        """Let the prompts of clients of this name run whose process `is_author` accepts, None if it is
        not known; of those of a `front`, which sends again what is not answered, the rest.

        Of a prompt that an earlier version took down without a name, the client is the one that
        made the session; if that had none either, only who sends it again can claim it.
        """
        for turn in list(self._claims):
            if front is not None and turn.keys.front == front:
                claimed = turn.unattended  # it may have had the answer
            else:
                is_named = (turn.client or self._record.client) == name
                claimed = is_named and is_author(turn.client_process)
            if claimed:
                self._settle(turn, claimed=True)

    def settle_older(self, newer: Turn) -> None:
        """End the prompts that a front did not send again before a newer one, as it sends in order
        what it keeps; let those run whose answer it may have had.
        """
        for turn in list(self._claims):
            if turn.keys.front is not None and turn.keys.front == newer.keys.front:
                self._settle(turn, claimed=turn.unattended)

    async def wait_for_claim(self, turn: Turn) -> bool:
        """Wait until the turn is claimed, or nobody can claim it any more; returns whether it may
        run. One that is cancelled meanwhile may.
        """
        claim = self._claims.get(turn)
        if claim is None:
            return True
        cancelled = asyncio.create_task(turn.cancelled.wait(), name="turn-cancelled")
        first: set[asyncio.Future[bool] | asyncio.Task[Literal[True]]] = {claim, cancelled}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
        del self._claims[turn]
        return turn.cancelled.is_set() or claim.result()

    async def _expire(self) -> None:
        await asyncio.gather(asyncio.sleep(self._window), self._expire_after_adopted())
        for turn in list(self._claims):
            log.info(
                "No client came back for a waiting prompt",
                action="turn_unclaimed",
                turn=turn.turn_id,
            )
            self._settle(turn, claimed=False)

    async def _expire_after_adopted(self) -> None:
        if self._adopted is not None:
            await self._adopted.over()
            await asyncio.sleep(self._window)

    def _settle(self, turn: Turn, *, claimed: bool) -> None:
        claim = self._claims.get(turn)
        if claim is not None and not claim.done():
            claim.set_result(claimed)
