"""Statements of this worker's tools and plugins on their way to the daemon, which runs them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pykoclaw_acp.channel.database import (
    MAX_CALL,
    DatabaseAnswer,
    DatabaseCall,
    SqlResult,
    SqlStatement,
)
from pykoclaw_acp.channel.frames import Hello, encode

DAEMON_WAIT: Final = 10.0  # s; for the next daemon
ANSWER_WAIT: Final = 30.0  # s; above what the daemon takes for a call, and for those before it

_NO_DAEMON: Final = "There is no daemon that could run it. Nothing was changed; try again."
_OLD_DAEMON: Final = (
    "The daemon is of an earlier version, which gives tools no access to the database. Nothing was"
    " changed; restart the daemon."
)
_LOST: Final = (
    "The daemon ended while it had this statement: it may have run, or not, and was not repeated."
    " Look before you try it again."
)
_LATE: Final = (
    f"The daemon did not answer within {ANSWER_WAIT:g} s: the statement may have run, or may still"
    " run. Look before you try it again."
)


class DatabaseFailed(Exception):
    """A call failed; `kind` is the name of an exception of DB-API 2.0 (PEP 249)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class DatabaseCalls:
    """Sends calls to the daemon that there is, and gives each its answer; `send` writes a frame.

    A call is sent once: one whose answer is lost fails, and says so. `data` and `scheduler` are of
    the newest daemon, as in Hello.
    """

    def __init__(self, epoch: int, send: Callable[[DatabaseCall], Awaitable[None]]) -> None:
        self._epoch = epoch
        self._send = send
        self._numbers = itertools.count(1)
        self._attached = asyncio.Event()
        self._taken = False  # by the daemon that there is
        self.data = self.scheduler = ""
        self._waiting: dict[int, asyncio.Future[DatabaseAnswer]] = {}

    def attach(self, hello: Hello) -> None:
        """There is a daemon."""
        self._taken = hello.database
        self.data, self.scheduler = hello.data, hello.scheduler
        self._attached.set()

    def detach(self) -> None:
        """The daemon is gone, with what it had not answered."""
        self._attached.clear()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(DatabaseFailed("OperationalError", _LOST))

    def answer(self, answer: DatabaseAnswer) -> None:
        """Give an answer to its call; ignored if nobody waits for it any more."""
        waiting = self._waiting.get(answer.call)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def run(self, *statements: SqlStatement) -> list[SqlResult]:
        """Run statements in one transaction, or a single one that only reads; raises
        DatabaseFailed.
        """
        return await self._run(statements)

    async def run_script(self, script: str, *, once: bool = False) -> None:
        """Run a script, each statement for itself; raises DatabaseFailed.

        `once`: under each daemon, whichever worker asks.
        """
        await self._run((), script, once=once)

    async def _run(
        self, statements: Sequence[SqlStatement], script: str = "", *, once: bool = False
    ) -> list[SqlResult]:
        try:
            async with asyncio.timeout(DAEMON_WAIT):
                await self._attached.wait()
        except TimeoutError:
            raise DatabaseFailed("OperationalError", _NO_DAEMON) from None
        if not self._taken:
            raise DatabaseFailed("OperationalError", _OLD_DAEMON)
        number = next(self._numbers)
        call = DatabaseCall(
            epoch=self._epoch, call=number, statements=list(statements), script=script, once=once
        )
        if len(encode(call)) > MAX_CALL:
            raise DatabaseFailed(
                "DataError", f"The statements have more than {MAX_CALL // 2**20} MiB."
            )
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[DatabaseAnswer] = loop.create_future()
        self._waiting[number] = answered
        try:
            await self._send(call)
            async with asyncio.timeout(ANSWER_WAIT):
                answer = await answered
        except TimeoutError:
            raise DatabaseFailed("OperationalError", _LATE) from None
        finally:
            del self._waiting[number]
            answered.cancel()
        if answer.error is not None:
            raise DatabaseFailed(answer.error.kind, answer.error.message)
        return answer.results
