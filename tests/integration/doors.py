"""The daemon's door: real sockets to sessions and workers in memory."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.clients import Clients
from pykoclaw_acp.server.lag import LoopLag
from tests.integration.rig import rig

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientInfo": {"name": "editor", "version": "1"}},
}


class Visitor:
    """A connection to the door; says what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.writer.write(json.dumps(message).encode() + b"\n")

    async def line(self) -> dict[str, Any] | None:
        """The next line; None at the end."""
        line = await self.text()
        return json.loads(line) if line else None

    async def text(self) -> bytes:
        """The next line as it is; empty at the end."""
        async with asyncio.timeout(60):
            try:
                return await self._reader.readline()
            except ConnectionError:
                return b""


class Door:
    def __init__(self, path: str) -> None:
        self._path = path
        self._visitors: list[Visitor] = []

    async def visitor(self, begun: bytes = b"") -> Visitor:
        """A new connection; `begun` is sent before the daemon can accept it."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        connection.send(begun)
        made = Visitor(*await asyncio.open_unix_connection(sock=connection))
        self._visitors.append(made)
        return made

    async def close(self) -> None:
        for one in self._visitors:
            one.writer.close()


@asynccontextmanager
async def door(path: Path) -> AsyncIterator[Door]:
    data = path / "data"
    data.mkdir()
    async with rig(data) as r:

        async def nobody() -> dict[str, str]:
            return {}

        app = SimpleNamespace(
            sessions=r.sessions,
            database=r.database,
            conversion=None,
            launcher=r.launcher,
            settings=Settings(
                data=data, nested_access="all"
            ),  # who connects is this process itself
            scheduler_info=None,
            owns_process=lambda _: False,
            worker_sessions=nobody,
        )
        clients = Clients(cast("App", app), Places(data, path, path / "socket"), LoopLag())
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(path / "socket"))
        listener.listen()
        accepting = asyncio.ensure_future(clients.accept(listener))
        made = Door(os.fspath(path / "socket"))
        try:
            yield made
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            await made.close()
            await clients.disconnect()
            listener.close()
