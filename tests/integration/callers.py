"""Commands, as the daemon sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pykoclaw_acp.link.places import Places
from pykoclaw_acp.server.command_prompts import CommandPrompts
from pykoclaw_acp.server.connection import ClientConnection
from pykoclaw_acp.server.control import Control
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.server.peer import DirectPeer
from pykoclaw_acp.server.rule_control import RuleControl
from pykoclaw_acp.server.session_finder import SessionFinder
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.conversion import Conversion
from tests.integration.rig import Rig
from tests.waiting import eventually


def rule_control(r: Rig) -> Any:
    """The handlers of rules alone, which need no call."""
    return RuleControl(r.sessions, r.database, SessionFinder(r.sessions, r.database))


class Caller:
    """A command of the command line: calls, and keeps the notifications that come."""

    def __init__(self, r: Rig, path: Path, conversion: Conversion | None = None) -> None:
        self.notifications: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self._in: asyncio.Queue[bytes] = asyncio.Queue()
        self._next = 0
        own = Control(
            r.sessions,
            r.database,
            Places(path, path, path / "socket"),
            LoopLag(),
            conversion,
            launcher=r.launcher,
        )
        prompts = CommandPrompts(r.sessions, r.database, path, own.finder.find)
        methods = own.methods | prompts.methods
        self.connection = ClientConnection(r.sessions, methods, DirectPeer(self))
        self.serving = asyncio.ensure_future(self.connection.serve())

    async def read(self) -> bytes:
        return await self._in.get()

    def gather(self) -> None: ...

    async def write(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" in message:
            self.notifications.append(message)
        else:
            self.answers[message["id"]] = message

    def begin(self, method: str, **params: Any) -> int:
        self._next += 1
        request = {
            "jsonrpc": "2.0",
            "id": self._next,
            "method": f"_pykoclaw.dev/{method}",
            "params": params,
        }
        self._in.put_nowait(json.dumps(request).encode() + b"\n")
        return self._next

    async def refused(self, method: str, **params: Any) -> dict[str, Any]:
        at = self.begin(method, **params)
        await eventually(lambda: at in self.answers)
        return dict(self.answers[at]["error"])

    async def call(self, method: str, **params: Any) -> Any:
        at = self.begin(method, **params)
        await eventually(lambda: at in self.answers)
        return self.answers[at]["result"]

    def told(self, name: str) -> list[dict[str, Any]]:
        return [
            one["params"] for one in self.notifications if one["method"] == f"_pykoclaw.dev/{name}"
        ]

    def text(self) -> str:
        updates = [one["update"] for one in self.told("event")]
        return "".join(
            u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk"
        )

    async def leave(self) -> None:
        """The process ends, as `server.clients` sees it."""
        self._in.put_nowait(b"")
        await self.serving
        async with asyncio.timeout(60):
            await self.connection.begun()
        self.connection.leave()


@asynccontextmanager
async def caller(r: Rig, path: Path, conversion: Conversion | None = None) -> AsyncIterator[Caller]:
    made = Caller(r, path, conversion)
    try:
        yield made
    finally:
        await r.sessions.live.cancel_all()
        await made.leave()


async def prompted(r: Rig, text: str = "say 3") -> Session:
    """A session that somebody has used."""
    session = await r.session()
    await r.run(session, text)
    return session
