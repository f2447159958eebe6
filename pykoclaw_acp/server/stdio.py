"""`serve --stdio`: serve one client on standard input and output, until the end of its input."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from typing import Final

import structlog

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import Exhausted, OutputLost, RestartWanted, StartupError
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.logging import setup as logging
from pykoclaw_acp.pool.forkserver_process import StartingForkServer
from pykoclaw_acp.server import client_processes
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.connection import ClientConnection
from pykoclaw_acp.server.gathering import GatheringWriter
from pykoclaw_acp.server.lag import run
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.server.peer import DirectPeer
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.system import shortage, threads

READ: Final = 256 * 1024  # bytes
ANSWERS_WAIT: Final = 10.0  # s; for calls that came before the end of input
CALLS_GRACE: Final = 0.4  # s; for calls that came just before a signal
ANSWERS_GRACE: Final = 0.3  # s; for a client that may not read any more
REOPENED: Final = (
    "The database could not be used for a while, and has to be opened anew. The server ends for that, since its client"
    " has sessions open. What was stored is kept. Start the server again, and load the sessions."
)

log: Final = structlog.get_logger()


class StdioTransport:
    """Transport over two descriptors. Pipes, sockets and terminals are awaited; files are read and
    written directly.
    """

    def __init__(
        self,
        source: int,
        sink: int,
        reader: asyncio.StreamReader | None,
        writer: asyncio.StreamWriter | None,
    ) -> None:
        """Use `open`. Without a reader or a writer, the descriptor is read or written directly."""
        self._source = source
        self._sink = sink
        self._reader = reader
        self._out = None if writer is None else GatheringWriter(writer)
        self.lost: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, source: int, sink: int) -> StdioTransport:
        """`source` and `sink` belong to the transport from now on."""
        if _same_socket(source, sink):
            # As socket activation hands it over. A write pipe takes whatever arrives there for the
            # peer's end.
            os.close(source)
            both = socket.socket(fileno=sink)
            return cls(sink, sink, *(await asyncio.open_connection(sock=both)))
        loop = asyncio.get_running_loop()
        reader: asyncio.StreamReader | None = None
        writer: asyncio.StreamWriter | None = None
        if _can_wait(source):
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            await loop.connect_read_pipe(lambda: protocol, os.fdopen(source, "rb", buffering=0))
        if _can_wait(sink):
            out, flow = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, os.fdopen(sink, "wb", buffering=0)
            )
            writer = asyncio.StreamWriter(out, flow, None, loop)
        return cls(source, sink, reader, writer)

    async def read(self) -> bytes:
        """Some bytes; none at the end."""
        try:
            if self._reader is not None:
                return await self._reader.read(READ)
            return await asyncio.to_thread(os.read, self._source, READ)
        except OSError:
            return b""

    def gather(self) -> None:
        """Let what is written in this round of the event loop leave together."""
        if self._out is not None:
            self._out.gather()

    async def write(self, line: bytes) -> None:
        """Write a line; raises ConnectionError when the client is gone, or nothing can be written any
        more: `lost` says why.
        """
        if self._out is None:
            self._write_directly(line)
            return
        if self._out.writer.is_closing():
            raise ConnectionError("the client closed its end")
        self._out.write(line)
        await self._out.writer.drain()

    def _write_directly(self, line: bytes) -> None:
        try:
            while line and not self.lost.done():
                line = line[os.write(self._sink, line) :]
        except OSError as error:
            self.lost.set_result(error)
        if self.lost.done():
            raise ConnectionError(str(self.lost.result()))

    def abort(self) -> None:
        """Discard what the client has not read."""
        if self._out is not None and not self._out.writer.is_closing():
            self._out.flush()
            self._out.writer.transport.abort()


def _can_wait(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return not (stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor)))


def _same_socket(source: int, sink: int) -> bool:
    one, other = os.fstat(source), os.fstat(sink)
    return stat.S_ISSOCK(one.st_mode) and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _take_streams() -> tuple[int, int]:
    """Reserve stdin and stdout for ACP: other output goes to stderr, other input is empty."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.stdout is not None:
        sys.stdout.flush()  # what was printed until now, too
    return source, sink


@contextlib.contextmanager
def _same_modes_after() -> Iterator[None]:
    """Restore the blocking mode of a terminal that is shared with a shell."""
    before = [fcntl.fcntl(descriptor, fcntl.F_GETFL) for descriptor in (0, 1)]
    kept = [os.dup(descriptor) for descriptor in (0, 1)]
    try:
        yield
    finally:
        for descriptor, flags in zip(kept, before, strict=True):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
            os.close(descriptor)


async def _converse(connection: ClientConnection) -> None:
    """Until the end of the input, and until what came before it is answered; prompts are not waited
    for.
    """
    await connection.serve()
    await _answered(connection, ANSWERS_WAIT)


async def _answered(connection: ClientConnection, seconds: float) -> None:
    """Wait so long at most until all that came was answered, or handed over to a turn."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await connection.begun()


async def _reopening(database: Database, serving: asyncio.Task[None]) -> bool:
    """Wait until the database must be opened anew before anything can be stored; False: the client is
    served no more.
    """
    await asyncio.wait([serving, database.watching], return_when=asyncio.FIRST_COMPLETED)
    return not serving.done()


async def serve(
    settings: Settings, source: int, sink: int, begun: StartingForkServer | None
) -> OSError | None:
    """Serve the client; returns why nothing could be written to it, if that is so.

    Raises StartupError, RestartWanted.
    """
    client = client_processes.of(os.getppid())
    places = Places(settings.data, settings.state, settings.socket)
    app, stopped = await App.start(settings, places, resident=False, begun=begun), False
    grace = max(settings.shutdown_grace - CALLS_GRACE - ANSWERS_GRACE, 0.1)
    transport = await StdioTransport.open(source, sink)
    connection = ClientConnection(
        app.sessions, METHODS, DirectPeer(transport, client_process=client)
    )
    loop = asyncio.get_running_loop()
    serving = loop.create_task(_converse(connection), name="client")
    transport.lost.add_done_callback(lambda _: serving.cancel())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, serving.cancel)
    try:
        while await _reopening(app.database, serving):
            async with connection.taking:
                await _answered(connection, ANSWERS_WAIT)
                if not connection.is_at_rest:
                    raise RestartWanted(REOPENED)
                log.warning("The database is opened anew", action="database_reopened")
                stopped = True
                await app.stop(grace)
                app, stopped = await App.start(settings, places, resident=False), False
                connection.move(app.sessions)
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await serving
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await _answered(connection, CALLS_GRACE)
        if not stopped:
            await app.stop(grace)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERS_GRACE):
                await connection.settle()
        transport.abort()
    return transport.lost.result() if transport.lost.done() else None


def main(settings: Settings, begun: StartingForkServer | None = None) -> int:
    """Serve until the end of stdin, or SIGTERM; returns the exit status. Raises StartupError,
    RestartWanted.

    `begun`: the fork server, if it was started already.
    """
    logging.configure(settings.log_level, settings.log_format)
    with _same_modes_after():
        try:
            if (lacking := shortage.lacking()) is not None:
                raise Exhausted(*lacking)
            source, sink = _take_streams()
            lost = run(lambda _: serve(settings, source, sink, begun))
        except RestartWanted as error:
            log.error("The server needs a restart", action="restart_wanted", reason=str(error))
            raise
        except StartupError as error:
            log.error(
                "The server cannot start",
                action="server_not_started",
                kind=error.kind,
                reason=str(error),
            )
            raise
    if lost is not None:
        raise OutputLost(lost.strerror or str(lost))
    threads.leave(0)
    return 0
