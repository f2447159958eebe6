"""`serve`: the resident daemon. Clients come and go at its socket; workers outlive it, and the next one adopts them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from pykoclaw_acp import __version__
from pykoclaw_acp.config import Settings
from pykoclaw_acp.errors import AcpError, Exhausted, InvalidRequest, Overloaded, RestartWanted, StartupError
from pykoclaw_acp.link import readiness
from pykoclaw_acp.link.lines import GREETING
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.logging import setup as logging
from pykoclaw_acp.logging import share as log_share
from pykoclaw_acp.protocol import jsonrpc
from pykoclaw_acp.server import health, instances, nested, returning, sockets
from pykoclaw_acp.server.admission import Admission, SpareDescriptor, Visitor, places_left, turn_away
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.connection import Connection
from pykoclaw_acp.server.control import Control
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.lag import LoopLag, run
from pykoclaw_acp.server.line_room import LineRoom
from pykoclaw_acp.server.link import FrontPeer
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.server.origin import Inside, Origins
from pykoclaw_acp.server.peer import DirectPeer, Peer
from pykoclaw_acp.server.share import Turnstile
from pykoclaw_acp.server.sockets import SocketTransport, Unread
from pykoclaw_acp.store.database import ABANDONED
from pykoclaw_acp.system import shortage
from pykoclaw_acp.system.lineage import MARKS
from pykoclaw_acp.system.machine import make_no_core_files, withhold_memory
from pykoclaw_acp.system.systemd import Notifier, inherited_sockets
from pykoclaw_acp.system.unix_socket import peer_pid, peer_uid
from pykoclaw_acp.tasks import Tasks

RECOVERY_WAIT: Final = 600.0  # s that systemd lets a start take: a huge database is migrated, never killed over it
CALLS_GRACE: Final = 0.5  # s; for calls that came just before the end
LOG_LOOK: Final = 3600.0  # s; how often the log's size is looked at

log: Final = structlog.get_logger()


class Daemon:
    """The connections of a running daemon."""

    def __init__(self, app: App, places: Places, lag: LoopLag) -> None:
        self._app = app
        self._origins = Origins(app.owns_process, app.worker_sessions, places.hash)
        self._methods: Mapping[str, Method[Call, Any]] = (
            METHODS | Control(app.sessions, app.database, places, lag, app.conversion).methods
        )
        self._tasks = Tasks()
        self._connections: set[Connection] = set()
        self._commands: Mapping[str, Method[Call, Any]] = {
            name: method for name, method in self._methods.items() if name not in METHODS
        }
        self._admission = Admission(places_left(app.settings.max_clients, app.settings.max_workers), os.geteuid())
        self._spare = SpareDescriptor()
        self._turnstile = Turnstile()
        self._room = LineRoom()
        self._unread = Unread()

    async def accept(self, listener: socket.socket) -> None:
        """Serve whoever connects, until this is cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("A client could not be accepted", action="accept_failed", error=str(error))
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._spare.refuse(listener, self._admission.refusal)
                await asyncio.sleep(0.1)  # others may close theirs
                continue
            self._take(connection)
            await asyncio.sleep(0)  # who had to give way leaves now, and takes no descriptor any more

    async def leave(self) -> None:
        """Let calls that came just now end, then let go of every client."""
        with contextlib.suppress(TimeoutError):
            begun = [connection.begun() for connection in self._connections]
            async with asyncio.timeout(CALLS_GRACE):
                await asyncio.gather(*begun)
        await self._tasks.end()
        self._spare.close()

    def _take(self, accepted: socket.socket) -> None:
        """Serve who has connected, or turn him away."""
        if peer_uid(accepted) != os.geteuid():
            log.warning("Another user's client was refused", action="client_refused", user=peer_uid(accepted))
            accepted.close()
            return
        pid = peer_pid(accepted)
        visitor = self._admission.enter(peer_uid(accepted), pid)
        if visitor is None:
            turn_away(accepted, self._admission.refusal)
        else:
            self._tasks.start(self._serve(accepted, visitor))

    async def _serve(self, accepted: socket.socket, visitor: Visitor) -> None:
        log_share.current.set(share := log_share.LogShare())
        transport = await SocketTransport.of(accepted, self._app.settings.client_stall, self._unread)
        visitor.close = transport.abort
        connection: Connection | None = None
        hurrying: asyncio.Task[None] | None = None
        looking = asyncio.ensure_future(self._origins.of(accepted))
        try:
            peer = None if visitor.gone else await _meet(transport, visitor, self._admission, self._room)
            inside = await looking
            if peer is None:
                return
            connection = self._connect(peer, visitor, inside)
            hurrying = self._tasks.start(_hurry(transport, visitor))
            self._connections.add(connection)
            if isinstance(peer, FrontPeer) and (inside is None or nested.is_client(self._app.settings.nested_access)):
                await returning.welcome(connection.client, peer.hello)
            await connection.serve()
            await connection.begun()  # a prompt that came with the end of the input counts
        except Overloaded as error:
            with contextlib.suppress(ConnectionError):
                await transport.write(jsonrpc.encode_error(jsonrpc.NULL_ID, error))
        except (ConnectionError, TimeoutError, AcpError) as error:
            log.info("A connection broke", action="connection_broken", reason=str(error))
        except Exception:
            log.exception("A connection failed", action="connection_failed")
        finally:
            share.tell()
            if hurrying is not None:
                hurrying.cancel()
            looking.cancel()
            if connection is not None:
                self._connections.discard(connection)
                connection.leave()
            try:
                await transport.close()
            finally:
                self._admission.left(visitor)

    def _connect(self, peer: Peer, visitor: Visitor, inside: Inside | None) -> Connection:
        methods, access = self._commands if visitor.kept else self._methods, self._app.settings.nested_access
        if inside is not None:
            log.info("A client inside of a session", action="nested_client", session=inside.session, may=access)
            methods = nested.allowed(methods, inside, access)
        refusal = self._admission.refusal if visitor.kept else None
        connection = Connection(self._app.sessions, methods, peer, self._turnstile, refusal)
        visitor.silent = lambda: not connection.introduced and isinstance(peer, DirectPeer)
        return connection


async def _hurry(transport: SocketTransport, visitor: Visitor) -> None:
    """End the connection of one that does not introduce itself, and of a command that asks nothing any more."""
    while True:
        await asyncio.sleep(visitor.patience)
        if visitor.silent():
            break
    said = f"Nothing was asked for {visitor.patience:g} s, and there was no `initialize`: the connection is closed."
    with contextlib.suppress(ConnectionError):
        await transport.write(jsonrpc.encode_error(jsonrpc.NULL_ID, InvalidRequest(said)))
    await transport.close()


async def _meet(transport: SocketTransport, visitor: Visitor, admission: Admission, room: LineRoom) -> Peer | None:
    """Who has connected; None if nobody said anything. Raises TimeoutError for one that keeps silent.

    Raises Overloaded for a front in a place that is kept for commands.
    """
    begun = b""
    async with asyncio.timeout(visitor.patience):
        while len(begun) < len(GREETING) and b"\n" not in begun:
            data = await transport.read()
            if not data:
                break
            begun += data
        if begun.startswith(GREETING):
            if visitor.kept:
                raise admission.refusal
            return await FrontPeer.meet(transport, begun, visitor.process, room)
    return DirectPeer(transport, begun, instances.of(visitor.process), room) if begun else None


async def _serve(settings: Settings, tell: _Starter, lag: LoopLag) -> None:
    notifier = Notifier.from_environment()
    inherited = inherited_sockets()
    places = Places(settings.data, settings.state, settings.socket)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    notifier.extend(RECOVERY_WAIT)
    listening = _Listening(inherited, places)
    try:
        while await _serve_database(settings, places, listening, notifier, stop=stop, tell=tell, lag=lag):
            log.warning("The database is opened anew", action="database_reopened")
    finally:
        listening.end()


class _Listening:
    """The sockets at which clients connect: systemd's, or one of our own as soon as it is wanted."""

    def __init__(self, inherited: list[socket.socket], places: Places) -> None:
        self.inherited = len(inherited)
        self._sockets = inherited
        self._path = places.socket
        self._made: int | None = None

    def begin(self) -> list[socket.socket]:
        """Those to accept from; raises StartupError."""
        if not self._sockets:
            self._sockets = [sockets.listen(self._path)]
            self._made = os.stat(self._path).st_ino
        return self._sockets

    def end(self) -> None:
        """Nobody can connect any more; who tries starts the next daemon."""
        if self._made is not None:
            sockets.remove(self._path, self._made)
            self._made = None
        for one in self._sockets:
            one.close()


async def _serve_database(
    settings: Settings,
    places: Places,
    listening: _Listening,
    notifier: Notifier,
    *,
    stop: asyncio.Event,
    tell: _Starter,
    lag: LoopLag,
) -> bool:
    """Serve until `stop`, or until the database has to be opened anew: then returns True, and clients may wait."""
    loop = asyncio.get_running_loop()
    app = await App.start(settings, places, resident=True)
    try:
        listeners = listening.begin()
    except StartupError:
        await app.detach()
        raise
    daemon = Daemon(app, places, lag)
    serving = [loop.create_task(daemon.accept(listener)) for listener in listeners]
    watching = loop.create_task(health.watch(notifier, app.database, app.pool))
    pruning = loop.create_task(app.pruner.run())
    ageing = loop.create_task(app.ages.run())
    trimming = loop.create_task(_keep_log_small(places.log))
    logging.keep_small(places.log)
    telling = loop.create_task(_tell_condition(notifier, app, f"pykoclaw-acp {__version__} serves {settings.data}"))
    stopped = loop.create_task(stop.wait())
    reopening = loop.create_task(app.database.reopen_wanted.wait())
    tell.ready()
    log.info("Daemon ready", action="daemon_ready", socket=places.socket, inherited=listening.inherited)
    try:
        await asyncio.wait([watching, stopped, reopening, *serving], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        for accepting in serving:
            if accepting.done() and (error := accepting.exception()) is not None:
                log.error("The socket failed", action="socket_failed", exc_info=error)
                raise RestartWanted("The daemon can take no more clients.") from error
        return not stop.is_set()
    finally:
        for task in (*serving, watching, pruning, ageing, trimming, telling, stopped, reopening):
            task.cancel()
        if not reopening.done():
            notifier.stopping()
            listening.end()  # first: who connects from now on starts the next daemon
        await daemon.leave()
        await app.detach()


async def _tell_condition(notifier: Notifier, app: App, serves: str) -> None:
    """`systemctl status` says whether the database can be written."""
    condition = app.database.condition
    notifier.ready(serves if condition.is_writable else f"{serves}, for reading. {condition.reason}")
    while True:
        await condition.in_trouble()
        notifier.status(f"{serves}, for reading. {condition.reason}")
        await condition.writable()
        notifier.status(serves)


async def _keep_log_small(path: str) -> None:
    while True:
        await asyncio.sleep(LOG_LOOK)
        logging.trim(path)


class _Starter:
    """The front that has started this daemon waits for one line on a pipe."""

    def __init__(self) -> None:
        descriptor = os.environ.pop(readiness.VARIABLE, "")
        self._pipe = int(descriptor) if descriptor.isdecimal() else None
        if self._pipe is not None:
            os.set_inheritable(self._pipe, False)

    def ready(self) -> None:
        """Clients can connect."""
        self._tell(readiness.ready())

    def failed(self, error: StartupError) -> None:
        """There will be no daemon."""
        self._tell(readiness.failed(error.exit_code, str(error), error.kind))

    def _tell(self, line: bytes) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                os.write(self._pipe, line)
                os.close(self._pipe)
            self._pipe = None


def main(load: Callable[[], Settings]) -> int:
    """Serve until SIGTERM; returns the exit status. Raises StartupError, also that of `load`."""
    starter = _Starter()
    withhold_memory()
    make_no_core_files()
    for mark in MARKS:
        os.environ.pop(mark, None)
    faulthandler.enable()  # systemd's watchdog ends a daemon that hangs with SIGABRT: the log says where
    status = 0
    try:
        if (lacking := shortage.lacking()) is not None:
            raise Exhausted(*lacking)
        settings = load()
        logging.configure(settings.log_level, settings.log_format)
        run(lambda lag: _serve(settings, starter, lag))
    except RestartWanted as error:
        log.error("The daemon needs a restart", action="restart_wanted", reason=str(error))
        status = error.exit_code
    except StartupError as error:
        log.error("The daemon cannot start", action="daemon_not_started", kind=error.kind, reason=str(error))
        starter.failed(error)
        raise
    except Exception as error:
        if (found := shortage.of(error)) is None:
            raise
        exhausted = Exhausted(*found)
        log.exception("The daemon cannot go on", action="daemon_exhausted", kind=exhausted.kind, reason=str(exhausted))
        starter.failed(exhausted)
        raise exhausted from error
    if ABANDONED:
        os._exit(status)
    return status
