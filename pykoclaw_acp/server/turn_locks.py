"""The locks around turns, as files of the data directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

import structlog

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.system.turn_lock import Holder, TurnLock

LOOK: Final = 0.1  # s between two attempts
MOMENT: Final = 1.0  # s of waiting that nobody is told of
PROGRAM: Final = "pykoclaw-acp"

log: Final = structlog.get_logger()


class FileLocks:
    """Implements `sessions.ports.TurnLocks`; `timeout` (s) is for other programs."""

    def __init__(self, data: str, timeout: float) -> None:
        self._data = data
        self._timeout = timeout
        self._held: dict[str, TurnLock] = {}
        self._closed = False

    async def acquire(
        self,
        conversation: str,
        waits: Callable[[str], None] = lambda _: None,
        *,
        patience: float = 0,
    ) -> None:
        """Take the lock; without it if the disk takes no file, or if this process did not release it
        in a moment: no turn of ours runs, and other programs are kept out.
        """
        loop, limit = asyncio.get_running_loop(), max(self._timeout, patience)
        began, told = loop.time(), False
        while True:
            try:
                found = await self._take(conversation)
            except (OSError, RuntimeError) as error:  # the latter: no thread can be started
                log.warning("Turns run without a lock", action="lock_failed", error=str(error))
                return
            if self._closed and isinstance(found, TurnLock):
                found.release()
                return
            if isinstance(found, TurnLock):
                self._held[conversation] = found
                return
            waited = loop.time() - began
            if waited >= MOMENT and found.program == PROGRAM and found.pid == os.getpid():
                log.error("A turn's lock was not released", action="lock_left")
                return
            if not told and waited >= MOMENT:
                told = True
                log.info("Another program runs a turn", action="lock_waits", holder=str(found))
                waits(str(found))
            if waited >= limit:
                raise _busy(found, limit)
            await asyncio.sleep(LOOK)

    def release(self, conversation: str) -> None:
        """Release the lock."""
        if (lock := self._held.pop(conversation, None)) is not None:
            lock.release()

    def close(self) -> None:
        """Release all locks, and take none any more: another server may follow in this process."""
        self._closed = True
        for conversation in list(self._held):
            self.release(conversation)

    async def _take(self, conversation: str) -> TurnLock | Holder:
        """Take the lock in a thread, since a disk may hang; one that comes after a cancel is released."""
        taking = asyncio.create_task(
            asyncio.to_thread(TurnLock.take, self._data, conversation, PROGRAM), name="lock-turn"
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_release)
            raise


def _release(taken: asyncio.Future[TurnLock | Holder]) -> None:
    if not taken.cancelled() and taken.exception() is None:
        lock = taken.result()
        if isinstance(lock, TurnLock):
            lock.release()


def _busy(holder: Holder, timeout: float) -> WorkerFailed:
    return WorkerFailed(
        ErrorKind.CONVERSATION_BUSY,
        f"Another program runs a turn of this conversation: {holder}. It has not ended within {timeout:g} s, so the"
        " prompt was not sent to Claude. Send it again later.",
    )
