"""Prompts that a new daemon found waiting: each runs only if somebody stands behind it.

That is its own front, which sends it again, or its own client, which loads, resumes or sends it again, within a window.
The window begins when the daemon does and, behind a turn that it adopted, once more when that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import structlog

from pykoclaw_acp.model.turns import SessionRecord, Turn
from pykoclaw_acp.tasks import Tasks

log: Final = structlog.get_logger()


class Unclaimed:
    """Those of one session; `window` is in seconds.

    `adopted_is_over` waits for the end of the turn that was adopted, and says whether there was one.
    """

    def __init__(self, record: SessionRecord, adopted_is_over: Callable[[], Awaitable[bool]], window: float) -> None:
        self._record = record
        self._adopted_is_over = adopted_is_over
        self._window = window
        self._verdicts: dict[Turn, asyncio.Future[bool]] = {}
        self._tasks = Tasks()

    def add(self, turn: Turn) -> None:
        """Another daemon had accepted it; one that was accepted as unattended needs nobody."""
        if turn.unattended:
            return
        self._verdicts[turn] = asyncio.get_running_loop().create_future()
        if not self._tasks:
            self._tasks.start(self._expire())

    def claim(self, turn: Turn) -> None:
        """Its client has sent it again."""
        self._settle(turn, claimed=True)

    def client_came(self, name: str) -> None:
        """A client has loaded or resumed the session: its prompts may run.

        Of a prompt that an earlier version took down without a name, the client is the one that made the session.
        """
        for turn in list(self._verdicts):
            if (turn.client or self._record.client or name) == name:
                self._settle(turn, claimed=True)

    def passed_over(self, newer: Turn) -> None:
        """A front sends what it keeps in order: what it did not send before a newer prompt, it does not keep."""
        for turn in list(self._verdicts):
            if turn.keys.front is not None and turn.keys.front == newer.keys.front:
                self._settle(turn, claimed=False)

    async def may_run(self, turn: Turn) -> bool:
        """Whether somebody stands behind it, as soon as that is known; true for one that is cancelled meanwhile."""
        verdict = self._verdicts.get(turn)
        if verdict is None:
            return True
        cancelled = asyncio.ensure_future(turn.cancelled.wait())
        first: set[asyncio.Future[bool] | asyncio.Task[Literal[True]]] = {verdict, cancelled}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
        del self._verdicts[turn]
        return turn.cancelled.is_set() or verdict.result()

    async def _expire(self) -> None:
        await asyncio.gather(asyncio.sleep(self._window), self._expire_after_adopted())
        for turn in list(self._verdicts):
            log.info("Nobody came for a prompt", action="turn_unclaimed", turn=turn.turn_id)
            self._settle(turn, claimed=False)

    async def _expire_after_adopted(self) -> None:
        if await self._adopted_is_over():
            await asyncio.sleep(self._window)

    def _settle(self, turn: Turn, *, claimed: bool) -> None:
        verdict = self._verdicts.get(turn)
        if verdict is not None and not verdict.done():
            verdict.set_result(claimed)
