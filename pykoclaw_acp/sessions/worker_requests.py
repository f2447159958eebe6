"""Requests to a session's worker, which it answers at once or never."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from typing import Any, Final

from pykoclaw_acp.channel.requests import (
    MakeTitle,
    RewindFiles,
    StopSubagents,
    StopTask,
    WorkerReply,
    WorkerRequest,
)
from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks

LIMIT: Final = 60.0  # s
NO_WORKER: Final = "Nothing runs in this session."
OLDER: Final = (
    "The session's worker is of an earlier version and cannot do this. Wait until it ends."
)


class WorkerRequests:
    """Requests of one session. Each raises InvalidRequest with the reason if it was refused."""

    def __init__(self, state: SessionState, workers: Workers) -> None:
        self._state = state
        self._workers = workers
        # Its worker may yet answer an earlier daemon's requests.
        self._numbers = itertools.count(secrets.randbits(53))
        self._tasks = Tasks()
        self._decided = asyncio.Event()  # whether the worker takes requests, or is gone
        self._open: dict[int, asyncio.Future[WorkerReply]] = {}

    async def stop_task(self, tool_call_id: str, why: str = "") -> None:
        """Stop a subagent, or a command that runs in the background; `why`: if the user did not want it."""
        number = next(self._numbers)
        frame = StopTask(
            epoch=self._state.epoch, request=number, tool_call_id=tool_call_id, why=why
        )
        await self._ask(frame)

    def stop_subagents(self, why: str = "") -> asyncio.Task[None]:
        """Stop the subagents that run in the background, if there are some, when the worker has
        answered; the returned task never fails. `why`: if the user did not want it.
        """
        return self._tasks.start(self._stop_subagents(why))

    async def _stop_subagents(self, why: str) -> None:
        frame = StopSubagents(epoch=self._state.epoch, request=next(self._numbers), why=why)
        with contextlib.suppress(InvalidRequest):
            await self._ask(frame)

    async def rewind_files(self, turn_id: str, epoch: int, *, dry: bool) -> dict[str, Any]:
        """What of the files changes, or `dry` would change, if they are put back to what they were
        before a turn.
        """
        frame = RewindFiles(epoch=epoch, request=next(self._numbers), turn_id=turn_id, dry=dry)
        return await self._ask(frame)

    async def make_title(self, words: str) -> str | None:
        """The title that Claude gives to a session about `words`; None if it finds none."""
        frame = MakeTitle(epoch=self._state.epoch, request=next(self._numbers), words=words)
        title = (await self._ask(frame)).get("title")
        return title if isinstance(title, str) else None

    def worker_ready(self) -> None:
        """The worker takes requests from now on, if its version does."""
        self._decided.set()

    def take(self, reply: WorkerReply) -> None:
        """An answer has come."""
        future = self._open.get(reply.request)
        if future is not None and not future.done():
            future.set_result(reply)

    def lost(self, why: str) -> None:
        """The worker is gone."""
        self._decided.set()
        self._decided.clear()  # the next one has not said yet what it takes
        for future in self._open.values():
            if not future.done():
                future.set_exception(InvalidRequest(why))

    async def _ask(self, frame: WorkerRequest) -> dict[str, Any]:
        try:
            async with asyncio.timeout(LIMIT):
                await self._require_able()
                reply = await self._answer(frame)
        except ConnectionError as error:  # it is gone, or another one, which was given nothing yet
            raise InvalidRequest(NO_WORKER) from error
        except TimeoutError as error:
            raise InvalidRequest("The session's worker did not answer.") from error
        if reply.error is not None:
            raise InvalidRequest(reply.error)
        return reply.result

    async def _require_able(self) -> None:
        """Wait until the worker has said what it takes. Raises InvalidRequest if not requests."""
        if self._workers.is_live(self._state.id) and not self._workers.steers(self._state.id):
            await self._decided.wait()
        if not self._workers.is_live(self._state.id):
            raise InvalidRequest(NO_WORKER)
        if not self._workers.steers(self._state.id):
            raise InvalidRequest(OLDER)

    async def _answer(self, frame: WorkerRequest) -> WorkerReply:
        future: asyncio.Future[WorkerReply] = asyncio.get_running_loop().create_future()
        self._open[frame.request] = future
        try:
            await self._workers.send(self._state.id, frame)
            return await future
        finally:
            del self._open[frame.request]
