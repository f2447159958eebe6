"""Who connects to a worker: daemons, which it serves one after the other, and whoever only asks
whose it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

from pykoclaw_acp.channel.frames import (
    FromWorker,
    Hello,
    Place,
    ToWorker,
    Where,
    decode_to_worker,
    encode,
)
from pykoclaw_acp.channel.socket import SocketLine, peer_is_ours, read_frames

log: Final = structlog.get_logger()


class DaemonLine:
    """The line to the daemon that the worker serves. Without one, frames go nowhere: numbered ones
    are kept.
    """

    def __init__(self) -> None:
        self._line: SocketLine | None = None

    @property
    def attached(self) -> bool:
        """There is a daemon."""
        return self._line is not None

    @property
    def pid(self) -> int | None:
        """The daemon's process; None if there is none, or it cannot be seen from here."""
        return self._line.peer if self._line is not None else None

    def attach(self, line: SocketLine) -> None:
        """Serve this daemon."""
        self._line = line

    def detach(self) -> None:
        """The daemon is gone."""
        self._line = None

    async def send(self, frame: FromWorker) -> None:
        """Send a frame."""
        await self.write(encode(frame))

    async def write(self, data: bytes) -> None:
        """Send encoded frames."""
        if self._line is not None:
            with contextlib.suppress(ConnectionError):
                await self._line.send(data)

    def end(self) -> None:
        """Send no more."""
        if self._line is not None:
            self._line.end()


class Reception:
    """Accepts connections. `place` answers `where`; `serve` is called with one daemon at a time."""

    def __init__(
        self,
        epoch: int,
        place: Callable[[], Place],
        serve: Callable[[SocketLine, Hello, AsyncIterator[ToWorker | None]], Awaitable[None]],
    ) -> None:
        self._epoch = epoch
        self._place = place
        self._serve = serve
        self._serving = asyncio.Lock()
        self._silent = 0  # connections on which nothing was said yet

    async def accept(
        self, listener: socket.socket, start: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """Accept connections for ever; `start` gives each a task of its own."""
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            start(self._meet(connection))

    async def until(self, claimed: asyncio.Event, patience: float) -> None:
        """Wait for a daemon; raises TimeoutError if none is connected after `patience` (s).

        One that is connected says Hello when the worker's row is written: that takes as long as
        another program keeps the database locked.
        """
        while not claimed.is_set():
            try:
                async with asyncio.timeout(patience):
                    await claimed.wait()
            except TimeoutError:
                if not self._silent:
                    raise

    async def _meet(self, connection: socket.socket) -> None:
        """The next daemon is heard when all that the last one wrote was read."""
        line = SocketLine(connection)
        try:
            if not peer_is_ours(connection):
                return
            frames = read_frames(line, decode_to_worker)
            self._silent += 1
            try:
                first = await anext(frames, None)
            except ValueError:
                return
            finally:
                self._silent -= 1
            if isinstance(first, Where):
                with contextlib.suppress(ConnectionError):
                    await line.send(encode(self._place()))
                return
            async with self._serving:
                if isinstance(first, Hello) and first.epoch == self._epoch:
                    await self._serve(line, first, frames)
                else:
                    log.warning(
                        "A connection was refused: it is not from this worker's daemon",
                        action="peer_refused",
                    )
        finally:
            await line.close()
