"""A worker that gives no sign of life in time is killed: its turn ends in words, and the session gets another one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog

log: Final = structlog.get_logger()


class Liveness:
    """When a worker was heard last; `kill` is called after `limit` (s) of silence."""

    def __init__(self, limit: float, kill: Callable[[], None]) -> None:
        self._limit = limit
        self._kill = kill
        self._listening = False
        self._last_sign = asyncio.get_running_loop().time()
        self._asked: float | None = None  # since when it owes an answer
        self._answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @contextlib.contextmanager
    def sign(self) -> Iterator[None]:
        """The worker was heard; that it takes long to write it down is no silence of the worker's."""
        self._listening = True
        try:
            yield
        finally:
            self._listening = False
            self._last_sign = asyncio.get_running_loop().time()

    async def watch(self) -> None:
        """Kill it when it is silent; a pause of this process itself is no silence of the worker's."""
        loop = asyncio.get_running_loop()
        interval = self._limit / 3
        while True:
            before = loop.time()
            await asyncio.sleep(interval)
            late = loop.time() - before > 2 * interval
            if late or self._listening:
                continue
            if loop.time() - self._last_sign > self._limit:
                log.warning("Worker gives no sign of life", action="worker_stalled")
                self._kill()
            elif self._asked is not None and loop.time() - self._asked > self._limit:
                log.warning("Worker cannot take a prompt", action="worker_stalled")
                self._kill()

    async def ask(self, question: Awaitable[None]) -> bool:
        """Let the question leave, and wait for the answer; False if the worker ends instead."""
        self._answer = asyncio.get_running_loop().create_future()
        self._asked = asyncio.get_running_loop().time()
        with contextlib.suppress(ConnectionError):
            await question
        try:
            return await asyncio.shield(self._answer)
        finally:
            self._asked = None

    def answered(self) -> None:
        """It can take a prompt."""
        if not self._answer.done():
            self._answer.set_result(True)

    def ended(self) -> None:
        """It is gone."""
        if not self._answer.done():
            self._answer.set_result(False)
