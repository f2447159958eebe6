"""Frames over a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from pykoclaw_acp.channel.frames import MAX_FRAME
from pykoclaw_acp.system import unix_socket

T = TypeVar("T")
_READ: Final = 256 * 1024  # bytes
BUSY_WAIT: Final = 2.0  # s for a worker that takes no connection now
BUSY_PAUSE: Final = 0.02  # s
_LITTLE: Final = 4096  # bytes, for which there is room where memory is short


def peer_is_ours(connection: socket.socket) -> bool:
    """Whether the peer runs as this user."""
    return unix_socket.peer_uid(connection) == os.geteuid()


async def connect(path: str) -> socket.socket:
    """Connect to the socket at `path`, of any length; wait a little where too many others do.

    Raises OSError, and PermissionError if another user answers.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        directory = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
        try:
            short = unix_socket.address(directory, os.path.basename(path))
            await _connect(connection, short)
        finally:
            os.close(directory)
        if not peer_is_ours(connection):
            raise PermissionError("another user answers on its socket")
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect(connection: socket.socket, address: str) -> None:
    # Not sock_connect(): it takes a full backlog, EAGAIN of connect(2), for a connection.
    deadline = time.monotonic() + BUSY_WAIT
    while True:
        try:
            connection.connect(address)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise ConnectionError("it takes no connections: it may hang") from error
        else:
            return
        await asyncio.sleep(BUSY_PAUSE)


class SocketLine:
    """A connected socket whose two directions fail independently.

    What a dead peer has written can still be read when nothing can be sent to it; asyncio's
    transports would discard it. Data is sent completely and in order, even if the sender is
    cancelled.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self.peer = unix_socket.peer_pid(connection) or None
        """The process at the other end; None if it cannot be seen from here."""
        self._reading = asyncio.Lock()
        self._watched = False  # the event loop reads; that goes on between two calls of `receive`
        self._readable: asyncio.Future[None] | None = None  # of the call that waits
        self._received: bytes | None = None
        self._waiting: deque[bytes] = deque()
        self._flushing: asyncio.Task[None] | None = None

    async def receive(self) -> bytes:
        """Receive some bytes; none at the end."""
        async with self._reading:
            if self._received is None and not self._watched:
                self._read()
            if self._received is None:
                await self._wait_for_data()
            received, self._received = self._received or b"", None
            return received

    async def send(self, *data: bytes) -> None:
        """Send; returns when the peer's buffer has taken it all. Raises ConnectionError when the
        peer is gone.
        """
        if self._flushing is None:
            if len(data) == 1 and not (data := (self._send_now(data[0]),))[0]:
                return
            self._waiting.extend(data)
            self._flushing = asyncio.create_task(self._flush(), name="flush")
            self._flushing.add_done_callback(lambda task: task.cancelled() or task.exception())
        else:
            self._waiting.extend(data)
        await asyncio.shield(self._flushing)

    def end(self) -> None:
        """Shut both directions down; what was received can still be read."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Close the socket, once its reader and its sender have seen the end."""
        self.end()
        if self._flushing is not None:
            with contextlib.suppress(OSError):
                await asyncio.shield(self._flushing)
        async with self._reading:
            self._unwatch()
            self._socket.close()

    async def _wait_for_data(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._watched:
            loop.add_reader(self._socket, self._take)
            self._watched = True
        self._readable = loop.create_future()
        try:
            await self._readable
        finally:
            self._readable = None

    def _take(self) -> None:
        if self._readable is None or self._readable.done():
            self._unwatch()  # nobody reads now: the peer has to wait
            return
        self._read()
        if self._received is not None:
            self._readable.set_result(None)
            if not self._received:
                self._unwatch()

    def _unwatch(self) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._watched = False

    def _read(self) -> None:
        try:
            try:
                self._received = self._socket.recv(_READ)
            except MemoryError:
                self._received = self._socket.recv(_LITTLE)
        except (BlockingIOError, InterruptedError, MemoryError):
            pass  # what is there stays there
        except OSError:
            self._received = b""

    def _send_now(self, data: bytes) -> bytes:
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return data
        except OSError as error:
            raise ConnectionResetError("the peer is gone") from error
        return data[sent:]

    async def _flush(self) -> None:
        try:
            while self._waiting:
                data = [self._waiting.popleft()]
                size = len(data[0])
                while self._waiting and size < _READ:
                    data.append(self._waiting.popleft())
                    size += len(data[-1])
                await asyncio.get_running_loop().sock_sendall(self._socket, b"".join(data))
        except OSError as error:
            raise ConnectionResetError("the peer is gone") from error
        finally:
            self._waiting.clear()
            self._flushing = None


async def read_batches(line: SocketLine, decode: Callable[[bytes], T]) -> AsyncIterator[list[T]]:
    """Frames as they arrive, in batches; raises ValueError for one that is broken or too large."""
    parts: list[bytes] = []
    size = 0
    while data := await line.receive():
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            parts.append(data)
            size += len(data)
            if size > MAX_FRAME:
                raise ValueError("a frame is larger than the limit")
            continue
        parts.append(head)
        lines = b"".join(parts).split(b"\n")
        parts, size = [tail], len(tail)
        yield [decode(line) for line in lines]


async def read_frames(line: SocketLine, decode: Callable[[bytes], T]) -> AsyncIterator[T]:
    """Frames one by one, until the line ends."""
    async for batch in read_batches(line, decode):
        for frame in batch:
            yield frame
