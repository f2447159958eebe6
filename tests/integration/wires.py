"""Clients of a connection in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pykoclaw_acp.channel.frames import Answer, ToWorker
from pykoclaw_acp.server.connection import ClientConnection
from pykoclaw_acp.server.line_room import LineRoom
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.server.peer import DirectPeer
from tests.e2e.harness import frames
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig
from tests.waiting import eventually


class Wire:
    """A client: what it sends is read by the connection, what the connection writes is kept, in
    order.
    """

    def __init__(self, r: Rig, room: LineRoom | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.last_id = 0
        self._methods: dict[str, str] = {}  # by the id of the request
        self.connection = ClientConnection(r.sessions, METHODS, DirectPeer(self, room=room))
        self.serving = asyncio.ensure_future(self.connection.serve())

    async def read(self) -> bytes:
        return await self.incoming.get()

    def gather(self) -> None: ...

    async def write(self, line: bytes) -> None:
        await self.blocked.wait()
        frame = frames.parse(line)
        if "method" in frame:
            frames.validate_call(frame)
        else:
            frames.validate_answer(frame, self._methods.get(json.dumps(frame["id"])))
        self.lines.append(frame)

    def send(self, *messages: dict[str, Any]) -> None:
        self._methods |= {
            json.dumps(one["id"]): str(one["method"])
            for one in messages
            if "id" in one and "method" in one
        }
        self.incoming.put_nowait(
            b"".join(
                json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages
            )
        )

    def begin(self, method: str, **params: Any) -> int:
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        return self.last_id

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.answer(self.begin(method, **params))

    async def answer(self, message_id: int) -> dict[str, Any]:
        return await eventually(
            lambda: next((m for m in self.lines if m.get("id") == message_id), None) or {}
        )

    def updates(self) -> list[dict[str, Any]]:
        return [
            line["params"]["update"]
            for line in self.lines
            if line.get("method") == "session/update"
        ]

    def seqs(self) -> list[int]:
        return [update["_meta"]["pykoclaw.dev/seq"] for update in self.updates()]

    def text(self) -> str:
        return "".join(
            one["content"]["text"]
            for one in self.updates()
            if one["sessionUpdate"] == "agent_message_chunk"
        )

    async def close(self) -> None:
        self.incoming.put_nowait(b"")
        await self.serving
        await self.connection.settle()


@asynccontextmanager
async def client(r: Rig, name: str | None = None) -> AsyncIterator[Wire]:
    wire = Wire(r)
    said = {} if name is None else {"clientInfo": {"name": name, "version": "1"}}
    await wire.call("initialize", protocolVersion=1, **said)
    try:
        yield wire
    finally:
        wire.blocked.set()
        await r.sessions.live.cancel_all()
        await wire.close()


async def new(wire: Wire) -> str:
    return str((await wire.call("session/new", cwd="/", mcpServers=[]))["result"]["sessionId"])


def prompt(session: str, text: str) -> dict[str, Any]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


async def load(wire: Wire, session: str) -> dict[str, Any]:
    return await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])


async def hanging(r: Rig, wire: Wire) -> tuple[str, int, MemoryChannel, str]:
    """A session in whose turn nothing happens by itself: its id, the prompt's, its worker, the
    turn's id.
    """
    session = await new(wire)
    running = wire.begin("session/prompt", **prompt(session, "hang"))
    await eventually(lambda: r.launcher.launched and r.launcher.launched[0].acked)
    return session, running, r.launcher.launched[0], next(iter(await r.states()))


def listen(channel: MemoryChannel) -> list[Answer]:
    answers: list[Answer] = []
    send = channel.send

    async def listening(frame: ToWorker) -> None:
        if isinstance(frame, Answer):
            answers.append(frame)
        await send(frame)

    channel.send = listening  # type: ignore[method-assign]
    return answers
