"""The daemon's socket, and the bytes of one connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from typing import Final

from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.front import places

READ: Final = 256 * 1024  # bytes
BACKLOG: Final = 512  # clients that may wait while the daemon starts
FLUSH_WAIT: Final = 0.5  # s; for what was written to a client that is left


def listen(path: str) -> socket.socket:
    """A listening socket at `path`, 0600, in a directory that is ours alone; the data directory's lock is held.

    Raises ConfigurationError if the directory cannot be used, or if another daemon answers at `path`.
    """
    directory_path, name = os.path.split(path)
    places.secure_directory(directory_path)
    directory = os.open(directory_path, os.O_PATH | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        _remove_stale(path, directory, name)
        listener.bind(f"/proc/self/fd/{directory}/{name}")  # an address may have 107 bytes, a path any number
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"The socket {path} cannot be made: {error.strerror}.") from error
    except ConfigurationError:
        listener.close()
        raise
    finally:
        os.umask(before)
        os.close(directory)
    return listener


def remove(path: str, inode: int) -> None:
    """The daemon that made the socket ends; another one at its place, as of systemd's, stays."""
    with contextlib.suppress(OSError):
        if os.stat(path, follow_symlinks=False).st_ino == inode:
            os.unlink(path)


def _remove_stale(path: str, directory: int, name: str) -> None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise ConfigurationError(f"{path} is in the socket's place. Remove it, or set PYKOCLAW_SOCKET.")
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


class SocketTransport:
    """A connection; a client that does not read for `stall` s is cut off, to come back and go on by its cursor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stall: float) -> None:
        self._reader = reader
        self._writer = writer
        self._stall = stall

    @classmethod
    async def of(cls, connection: socket.socket, stall: float) -> SocketTransport:
        """The transport owns the connection from now on."""
        return cls(*(await asyncio.open_unix_connection(sock=connection)), stall)

    async def read(self) -> bytes:
        """Some bytes; none at the end."""
        try:
            return await self._reader.read(READ)
        except OSError:
            return b""

    async def write(self, line: bytes) -> None:
        """Write a line; raises ConnectionError when the client is gone, or was cut off."""
        if self._writer.is_closing():
            raise ConnectionError("the client closed its end")
        self._writer.write(line)
        if not self._writer.transport.get_write_buffer_size():
            return  # it has left: there is nothing to wait for
        try:
            # wait_for() of Python 3.11 swallows a cancel that comes as the inner call ends.
            async with asyncio.timeout(self._stall):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise ConnectionError("the client does not read") from None

    async def close(self) -> None:
        """Close, giving what was written a moment to leave."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT):
                await self._writer.wait_closed()
        self._writer.transport.abort()
