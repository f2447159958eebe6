"""The clients of the daemon: each connection from `accept` to its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import structlog

from pykoclaw_acp import on_behalf
from pykoclaw_acp.config import session_environment
from pykoclaw_acp.errors import AcpError, InvalidRequest, Overloaded
from pykoclaw_acp.link.lines import GREETING
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.protocol import jsonrpc
from pykoclaw_acp.server import client_processes, nested, returning
from pykoclaw_acp.server.admission import (
    Admission,
    AdmittedConnection,
    SpareDescriptor,
    places_left,
    turn_away,
)
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.command_prompts import CommandPrompts
from pykoclaw_acp.server.connection import ClientConnection
from pykoclaw_acp.server.control import Control
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.server.line_room import LineRoom
from pykoclaw_acp.server.link import FrontPeer
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.server.origin import Inside, Origins
from pykoclaw_acp.server.peer import DirectPeer, Peer
from pykoclaw_acp.server.scheduled import ScheduledTasks
from pykoclaw_acp.server.share import Turnstile
from pykoclaw_acp.server.sockets import SocketTransport, Unread
from pykoclaw_acp.system.unix_socket import peer_pid, peer_uid
from pykoclaw_acp.tasks import Tasks

CALLS_GRACE: Final = 0.5  # s; for calls that came just before the end
FAREWELL: Final = 0.1  # s; for telling fronts that the end is an orderly one

log: Final = structlog.get_logger()


class Clients:
    """The connections of a running daemon: who may connect, and who is connected."""

    def __init__(self, app: App, places: Places, lag: LoopLag) -> None:
        self._app = app
        self._origins = Origins(app.owns_process, app.worker_sessions, places.hash)
        own = Control(
            app.sessions,
            app.database,
            places,
            lag,
            app.conversion,
            launcher=app.launcher,
            scheduler=app.scheduler_info,
            hidden=app.settings.hide_channels,
            others=self._other_settings,
            settings=app.settings,
        )
        prompts = CommandPrompts(app.sessions, app.database, app.settings.data, own.finder.find)
        self._methods: Mapping[str, Method[Call, Any]] = (
            METHODS | own.methods | prompts.methods | ScheduledTasks(app).methods
        )
        self._compare = partial(session_environment.others, app.settings)
        self._tasks = Tasks()
        self._connections: set[ClientConnection] = set()
        self._commands: Mapping[str, Method[Call, Any]] = {
            name: method for name, method in self._methods.items() if name not in METHODS
        }
        self._admission = Admission(
            places_left(app.settings.max_clients, app.settings.max_workers), os.geteuid()
        )
        self._spare = SpareDescriptor()
        self._turnstile = Turnstile()
        self._room = LineRoom()
        self._unread = Unread()

    async def accept(self, listener: socket.socket) -> None:
        """Accept and serve clients until cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning(
                    "A client could not be accepted", action="accept_failed", error=str(error)
                )
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._spare.refuse(listener, self._admission.refusal)
                await asyncio.sleep(0.1)  # others may close theirs
                continue
            self._take(connection)
            # Who had to give way leaves now, and takes no descriptor any more
            await asyncio.sleep(0)

    async def disconnect(self) -> None:
        """Wait a moment for calls that just arrived, then disconnect every client."""
        with contextlib.suppress(TimeoutError):
            begun = [connection.begun() for connection in self._connections]
            async with asyncio.timeout(CALLS_GRACE):
                await asyncio.gather(*begun)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await asyncio.gather(
                    *(one.farewell() for one in self._connections), return_exceptions=True
                )
        await self._tasks.end()
        self._spare.close()

    def _other_settings(self) -> list[tuple[str, list[str]]]:
        """Clients whose environment sets a daemon's setting to another value, and which settings."""
        return [
            (one.client.name, peer.other_settings)
            for one in self._connections
            if isinstance(peer := one.client.peer, FrontPeer) and peer.other_settings
        ]

    def _take(self, accepted: socket.socket) -> None:
        """Serve an accepted connection, or refuse it."""
        if peer_uid(accepted) != os.geteuid():
            log.warning(
                "Another user's client was refused",
                action="client_refused",
                user=peer_uid(accepted),
            )
            accepted.close()
            return
        pid = peer_pid(accepted)
        admitted = self._admission.enter(peer_uid(accepted), pid)
        if admitted is None:
            turn_away(accepted, self._admission.refusal)
        else:
            self._tasks.start(self._serve(accepted, admitted), name="client")

    async def _serve(self, accepted: socket.socket, admitted: AdmittedConnection) -> None:
        share = on_behalf.of(admitted.process or admitted)
        transport = await SocketTransport.of(
            accepted, self._app.settings.client_stall, self._unread
        )
        admitted.close = transport.abort
        peer: Peer | None = None
        connection: ClientConnection | None = None
        hurrying: asyncio.Task[None] | None = None
        looking = asyncio.get_running_loop().create_task(self._origins.of(accepted), name="origin")
        try:
            peer = None if admitted.gone else await self._meet(transport, admitted)
            if peer is None:
                return
            inside = await looking
            connection = self._connect(peer, admitted, inside)
            hurrying = self._tasks.start(_hurry(transport, admitted), name="introduction deadline")
            self._connections.add(connection)
            if isinstance(peer, FrontPeer) and (
                inside is None or nested.is_client(self._app.settings.nested_access)
            ):
                await returning.welcome(connection.client, peer.hello)
            await connection.serve()
            await connection.begun()  # a prompt that came with the end of the input counts
        except (ConnectionError, TimeoutError, AcpError) as error:
            if not isinstance(error, Overloaded):
                log.info("A connection broke", action="connection_broken", reason=str(error))
            if isinstance(error, AcpError):  # a front that keeps meeting it passes it on
                with contextlib.suppress(ConnectionError):
                    await transport.write(jsonrpc.encode_error(jsonrpc.NULL_ID, error))
        except Exception:
            log.exception("A connection failed", action="connection_failed")
        finally:
            share.tell()
            if hurrying is not None:
                hurrying.cancel()
            looking.cancel()
            if peer is not None:
                peer.stop_reading()  # of one that was never served, too
            try:
                if connection is not None:
                    self._connections.discard(connection)
                    await connection.let_go()
            finally:
                try:
                    await transport.close()
                finally:
                    self._admission.left(admitted)

    async def _meet(self, transport: SocketTransport, admitted: AdmittedConnection) -> Peer | None:
        """Determine the peer; None if nothing was sent. Raises TimeoutError if it stays silent.

        Raises Overloaded for a front in a place that is reserved for commands.
        """
        begun = b""
        room = self._room.of(admitted.process or admitted)
        async with asyncio.timeout(admitted.patience):
            while len(begun) < len(GREETING) and b"\n" not in begun:
                data = await transport.read()
                if not data:
                    break
                begun += data
            if begun.startswith(GREETING):
                if admitted.kept:
                    raise self._admission.refusal
                return await FrontPeer.meet(
                    transport, begun, admitted.process, room, self._compare,
                    rest=self._turnstile.next,
                )  # fmt: skip
        client_process = client_processes.of(admitted.process)
        return DirectPeer(transport, begun, client_process, room) if begun else None

    def _connect(
        self, peer: Peer, admitted: AdmittedConnection, inside: Inside | None
    ) -> ClientConnection:
        methods, access = (
            self._commands if admitted.kept else self._methods,
            self._app.settings.nested_access,
        )
        if inside is not None:
            log.info(
                "A client inside of a session",
                action="nested_client",
                session=inside.session,
                may=access,
            )
            methods = nested.allowed(methods, inside, access)
        refusal = self._admission.refusal if admitted.kept else None
        connection = ClientConnection(self._app.sessions, methods, peer, self._turnstile, refusal)
        admitted.silent = lambda: not connection.introduced and isinstance(peer, DirectPeer)
        return connection


async def _hurry(transport: SocketTransport, admitted: AdmittedConnection) -> None:
    """Disconnect a client that does not introduce itself, or a command that is idle."""
    while True:
        await asyncio.sleep(admitted.patience)
        if admitted.silent():
            break
    said = f"Nothing was asked for {admitted.patience:g} s, and there was no `initialize`: the connection is closed."
    with contextlib.suppress(ConnectionError):
        await transport.write(jsonrpc.encode_error(jsonrpc.NULL_ID, InvalidRequest(said)))
    await transport.close()
