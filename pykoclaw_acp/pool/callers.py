"""Calls of one worker to the database, answered while its other frames are processed."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from pykoclaw_acp.channel.database import DatabaseAnswer, DatabaseCall, SqlError
from pykoclaw_acp.channel.frames import ToWorker
from pykoclaw_acp.pool.ports import CallTaker
from pykoclaw_acp.tasks import Tasks

MOST: Final = 32  # calls of one worker at a time
_TOO_MANY: Final = "This session has too many statements on their way. Nothing was changed."


class Caller:
    """Answers a worker's calls in the background; `send` writes a frame to it."""

    def __init__(
        self, database: CallTaker | None, send: Callable[[ToWorker], Awaitable[None]]
    ) -> None:
        self._database = database
        self._send = send
        self._tasks = Tasks()

    def take(self, call: DatabaseCall) -> None:
        """Answer the call as soon as it has run."""
        self._tasks.start(self._answer(call, refused=len(list(self._tasks)) >= MOST))

    def gone(self) -> None:
        """The worker takes no answers any more; what runs goes on to its end."""
        self._tasks.cancel()

    async def _answer(self, call: DatabaseCall, *, refused: bool) -> None:
        if refused or self._database is None:
            error = SqlError("OperationalError", _TOO_MANY)
            answer = DatabaseAnswer(epoch=call.epoch, call=call.call, error=error)
        else:
            answer = await self._database.take(call)
        with contextlib.suppress(ConnectionError):
            await self._send(answer)
