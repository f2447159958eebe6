"""A client that reads only while it is told to: behind a front, or at the daemon's
socket itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket
from typing import Any, Final

from tests.e2e.harness import frames

WAIT: Final = 30.0  # s


class Deaf:
    """Speaks ACP over a connected socket, which it owns. `updates` are those that it has read."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.updates: list[dict[str, Any]] = []
        self._connection = connection
        self._received = b""
        self._ids = 0

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; updates that come before it are taken."""
        self._ids += 1
        request = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        await asyncio.get_running_loop().sock_sendall(
            self._connection, json.dumps(request).encode() + b"\n"
        )
        while True:
            for frame in await self._frames():
                if frame.get("id") == self._ids:
                    result: dict[str, Any] = frame["result"]
                    return result

    async def follow(self, session: str, cwd: str, after: int) -> None:
        """Be a client that is shown what comes in the session after `after`."""
        await self.call("initialize", protocolVersion=1, clientCapabilities={})
        meta = {"pykoclaw.dev/after": after}
        await self.call("session/resume", sessionId=session, cwd=cwd, mcpServers=[], _meta=meta)

    @property
    def seqs(self) -> list[int]:
        """Those of the updates."""
        return [_seq(update) for update in self.updates]

    async def read_up_to(self, seq: int) -> None:
        """Read until this update, or until the end."""
        with contextlib.suppress(ConnectionError):
            while not self.updates or _seq(self.updates[-1]) < seq:
                await self._frames()

    @property
    def hung_up_on(self) -> bool:
        """Whether the other end has closed; nothing is read for that."""
        poll = select.poll()
        poll.register(self._connection, select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._connection.close()

    async def _frames(self) -> list[dict[str, Any]]:
        """The next frames; raises ConnectionError at the end."""
        data = await asyncio.wait_for(
            asyncio.get_running_loop().sock_recv(self._connection, 1 << 20), WAIT
        )
        if not data:
            raise ConnectionResetError("the other end has closed")
        *lines, self._received = (self._received + data).split(b"\n")
        found = [frames.parse(line) for line in lines]
        for frame in found:
            update = frame.get("params", {}).get("update", {})
            if "pykoclaw.dev/seq" in update.get("_meta", {}):
                self.updates.append(update)
        return found


def _seq(update: dict[str, Any]) -> int:
    seq: int = update["_meta"]["pykoclaw.dev/seq"]
    return seq
