"""The sockets at which the daemon's clients arrive; its own is made anew when its file is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from pykoclaw_acp.errors import StartupError
from pykoclaw_acp.server.sockets import listen

LOOK: Final = 5.0  # s between two looks at the socket's file, which cleaners and logouts remove
LOST: Final = "The file of systemd's socket {} is gone, so no new client can connect: restart the socket's unit."

log: Final = structlog.get_logger()


class Listening:
    """The listening sockets: those of systemd, or one of our own, made when it is needed."""

    def __init__(
        self, inherited: list[socket.socket], path: str, *, lost: Callable[[str], None]
    ) -> None:
        """`lost` is told, in words, that the file of a socket of systemd's is gone."""
        self.inherited = len(inherited)
        self._sockets = inherited
        self._path = path
        self._made: tuple[int, int] | None = None
        self._given = [*filter(None, map(_path_of, inherited))]
        self._lost = lost
        self._told = ""

    def begin(self) -> None:
        """Let clients connect; raises StartupError."""
        if not self._sockets:
            self._make()

    async def serve(self, accept: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        """Let clients in by `accept` until cancelled; raises what it raises."""
        accepting = [_start(accept(one)) for one in self._sockets]
        try:
            while True:
                done, _ = await asyncio.wait(
                    accepting, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED
                )
                for one in done:
                    one.result()
                if (before := self._restore()) is not None:
                    # First: it watches a descriptor that will be another's
                    await _cancel(accepting)
                    before.close()
                    accepting = [_start(accept(one)) for one in self._sockets]
        finally:
            await _cancel(accepting)

    def end(self) -> None:
        """Close them; whoever tries to connect then starts the next daemon."""
        if self._made is not None:
            if _identity(self._path) == self._made:  # another one at its path stays
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            self._made = None
        for one in self._sockets:
            one.close()

    def _make(self) -> None:
        self._sockets = [listen(self._path)]
        self._made = _identity(self._path)

    def _restore(self) -> socket.socket | None:
        """Make our socket anew if its file is gone, or another's; returns the one before, if so."""
        if self._made is None:
            for path in self._given:
                if _identity(path) is None:
                    self._tell(LOST.format(path))
            return None
        if _identity(self._path) == self._made:
            return None
        (before,) = self._sockets
        try:
            self._make()
        except (OSError, StartupError) as error:
            self._tell(f"The socket's file is gone, and cannot be made again. {error}")
            return None
        self._told = ""
        log.warning(
            "The socket's file was gone; it is made anew",
            action="socket_restored", socket=self._path,
        )  # fmt: skip
        return before

    def _tell(self, words: str) -> None:
        """Tell the user, once."""
        if words != self._told:
            self._told = words
            log.warning(words, action="socket_lost")
            self._lost(words)


def _start(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(coroutine, name="accept")


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for one in tasks:
        one.cancel()
    await asyncio.wait(tasks)


def _path_of(listener: socket.socket) -> str | None:
    """The file of a socket; None if it has none, as an abstract one."""
    name = listener.getsockname()
    return name if isinstance(name, str) and name.startswith("/") else None


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a file; None if it is not there, or cannot be seen."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino
