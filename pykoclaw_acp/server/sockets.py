"""A listening socket at a path, and the transport of a connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from typing import Final

import structlog

from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.link import places
from pykoclaw_acp.server.gathering import GatheringWriter
from pykoclaw_acp.system import unix_socket

READ: Final = 256 * 1024  # bytes
BACKLOG: Final = 512  # clients that may wait while the daemon starts
COUNTED: Final = 256 * 1024  # bytes that a client may leave before anybody counts
MOST_UNREAD: Final = 128 * 1024 * 1024  # bytes
FLUSH_WAIT: Final = 0.5  # s; for what was written to a client that is left

log: Final = structlog.get_logger()


def listen(path: str) -> socket.socket:
    """A listening socket at `path`, 0600, in a directory that is ours alone; the data directory's
    lock is held.

    Raises ConfigurationError if the directory cannot be used, or if another daemon answers at
    `path`.
    """
    directory_path, name = os.path.split(path)
    places.secure_directory(directory_path)
    directory = os.open(directory_path, os.O_PATH | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path, directory, name)
        unix_socket.bind(listener, directory, name)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"The socket {path} cannot be made: {error.strerror}.") from error
    except ConfigurationError:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener


def _remove_stale(path: str, directory: int, name: str) -> None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise ConfigurationError(
            f"{path} is in the socket's place. Remove it, or set PYKOCLAW_SOCKET."
        )
    try:
        places.connect(path).close()
    except ConnectionRefusedError:
        os.unlink(name, dir_fd=directory)
        return
    except BlockingIOError:
        pass
    raise ConfigurationError(
        f"Another daemon answers at the socket {path}. Set PYKOCLAW_SOCKET to another path for this data directory."
    )


class Unread:
    """Limits the unread output of all clients: above the limit, the client with the most is
    disconnected.
    """

    def __init__(self, most: int = MOST_UNREAD) -> None:
        self._most = most
        self._transports: set[SocketTransport] = set()

    def add(self, transport: SocketTransport) -> None:
        """Count this transport."""
        self._transports.add(transport)

    def discard(self, transport: SocketTransport) -> None:
        """Stop counting this transport."""
        self._transports.discard(transport)

    def check(self) -> None:
        """Enforce the limit, after a write that was buffered."""
        while sum(one.unread for one in self._transports) > self._most:
            worst = max(self._transports, key=lambda one: one.unread)
            log.warning("A client does not read", action="client_cut_off", unread=worst.unread)
            self.discard(worst)
            worst.abort()


class SocketTransport:
    """A connection; a client that does not read for `stall` s is cut off, to come back and go on by
    its cursor.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stall: float,
        unread: Unread | None = None,
    ) -> None:
        self._all = unread or Unread()
        self._all.add(self)
        self._cut = False
        self._reader = reader
        self._writer = writer
        self._out = GatheringWriter(writer)
        self._stall = stall

    @classmethod
    async def of(
        cls, connection: socket.socket, stall: float, unread: Unread | None = None
    ) -> SocketTransport:
        """The transport owns the connection from now on; `unread` counts what clients leave."""
        return cls(*(await asyncio.open_unix_connection(sock=connection)), stall, unread)

    @property
    def unread(self) -> int:
        """Bytes that were written and not sent."""
        return self._writer.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Disconnect the client at once."""
        self._cut = True
        self._writer.transport.abort()

    async def read(self) -> bytes:
        """Read some bytes; none at the end."""
        try:
            return await self._reader.read(READ)
        except OSError:
            return b""

    def gather(self) -> None:
        """Let what is written in this round of the event loop leave together."""
        self._out.gather()

    async def write(self, line: bytes) -> None:
        """Write a line; raises ConnectionError when the client is gone, or was cut off."""
        if self._writer.is_closing():
            raise ConnectionError("the client closed its end")
        self._out.write(line)
        if not self.unread:
            return  # it has left, or will in this round: there is nothing to wait for
        if self.unread > COUNTED:
            self._all.check()
        try:
            async with asyncio.timeout(self._stall):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise ConnectionError("the client does not read") from None
        if self._cut:
            raise ConnectionError("the client does not read")

    async def close(self) -> None:
        """Close, giving what was written a moment to leave."""
        self._all.discard(self)
        self._out.flush()
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT):
                await self._writer.wait_closed()
        self._writer.transport.abort()
