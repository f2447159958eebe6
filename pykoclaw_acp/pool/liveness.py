"""Liveness of a worker: one that is silent for too long is killed, so that its turn ends and its
session goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog

log: Final = structlog.get_logger()


class Liveness:
    """Watches one worker; calls `kill` after `timeout` (s) without a frame, or without the answer
    to a ping.
    """

    def __init__(self, timeout: float, kill: Callable[[], None]) -> None:
        self._timeout = timeout
        self._kill = kill
        self._processing = False
        self._last_frame = asyncio.get_running_loop().time()
        self._pinged: float | None = None  # since when a pong is due
        self._pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """Frames have come; the time that it takes to process them does not count."""
        self._processing = True
        try:
            yield
        finally:
            self._processing = False
            self._last_frame = asyncio.get_running_loop().time()

    async def watch(self) -> None:
        """Kill the worker when it is silent; a pause of this process itself does not count."""
        loop = asyncio.get_running_loop()
        interval = self._timeout / 3
        while True:
            before = loop.time()
            await asyncio.sleep(interval)
            late = loop.time() - before > 2 * interval
            if late or self._processing:
                continue
            if loop.time() - self._last_frame > self._timeout:
                log.warning("Worker gives no sign of life", action="worker_stalled")
                self._kill()
            elif self._pinged is not None and loop.time() - self._pinged > self._timeout:
                log.warning("Worker cannot take a prompt", action="worker_stalled")
                self._kill()

    async def ping(self, sent: Awaitable[None]) -> bool:
        """Send a ping, and wait for the pong; False if the worker ends instead."""
        self._pong = asyncio.get_running_loop().create_future()
        self._pinged = asyncio.get_running_loop().time()
        with contextlib.suppress(ConnectionError):
            await sent
        try:
            return await asyncio.shield(self._pong)
        finally:
            self._pinged = None

    def pong(self) -> None:
        """The worker can take a prompt."""
        if not self._pong.done():
            self._pong.set_result(True)

    def ended(self) -> None:
        """The worker is gone."""
        if not self._pong.done():
            self._pong.set_result(False)
