"""Fronts, as the daemon sees them: their lines, written by a test."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

from pykoclaw_acp.server import returning
from pykoclaw_acp.server.connection import ClientConnection
from pykoclaw_acp.server.line_room import LineRoom
from pykoclaw_acp.server.link import FrontPeer
from pykoclaw_acp.server.methods import METHODS
from tests.e2e.harness import frames
from tests.integration.rig import Rig
from tests.waiting import eventually

INITIALIZE: dict[str, Any] = {
    "protocolVersion": 1,
    "clientInfo": {"name": "editor", "version": "1"},
}
# A line of the client's that calls a method, behind its number.
CALL: Final = re.compile(r'^>>? (\d+) .*?"method": ?"([^"]+)"', re.MULTILINE)
PIECE: Final = 512 * 1024  # bytes that are read at once


class Front:
    """A front with one connection; `heard` are the daemon's lines, split in kind and rest."""

    def __init__(self, r: Rig, hello: dict[str, Any], room: LineRoom | None = None) -> None:
        self.heard: list[tuple[str, str]] = []
        self.gone = False
        self.fault: frames.BadFrame | None = None  # what the daemon wrote that is not ACP
        self._methods: dict[int, str] = {}  # by the number of the request
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.incoming.put_nowait(b"front %b\n" % json.dumps(hello).encode())
        self.connection: ClientConnection | None = None
        self.serving = asyncio.ensure_future(self._serve(r, room))

    async def _serve(self, r: Rig, room: LineRoom | None) -> None:
        peer = await FrontPeer.meet(self, await self.read(), room=room)
        self.connection = ClientConnection(r.sessions, METHODS, peer)
        await returning.welcome(self.connection.client, peer.hello)
        await self.connection.serve()
        await self.connection.begun()
        self.connection.leave()

    async def read(self) -> bytes:
        return await self.incoming.get()

    def gather(self) -> None: ...

    async def write(self, line: bytes) -> None:
        if self.gone:
            raise ConnectionError
        kind, _, rest = line.decode().rstrip("\n").partition(" ")
        if '{"jsonrpc"' in rest:  # a frame for the client, after numbers of the link
            try:
                self._check(rest)
            except frames.BadFrame as error:
                self.fault = error
        self.heard.append((kind, rest))

    def _check(self, rest: str) -> None:
        frame = frames.parse(rest[rest.index("{") :].encode())
        if "method" in frame:
            frames.validate_call(frame)
        else:
            frames.validate_answer(frame, self._methods.get(int(rest.partition(" ")[0])))

    def say(self, line: str) -> None:
        self._methods |= {int(number): method for number, method in CALL.findall(line)}
        data = line.encode() + b"\n"
        for begins in range(0, len(data), PIECE):
            self.incoming.put_nowait(data[begins : begins + PIECE])

    def call(self, number: int, method: str, again: int | None = None, **params: Any) -> None:
        """A request under the id `number`; `again`: sent once more, when the client had sent it at
        this time (ms).
        """
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        self.say(f"> {number} {line}" if again is None else f">> {number} {again} {line}")

    def notify(self, number: int, method: str, again: int | None = None, **params: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", "method": method, "params": params})
        self.say(f"> {number} {line}" if again is None else f">> {number} {again} {line}")

    def rests(self, kind: str) -> list[str]:
        return [rest for one, rest in self.heard if one == kind]

    async def answer(self, number: int) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            lines = [rest.partition(" ") for rest in self.rests("answer")]
            return next((json.loads(line) for n, _, line in lines if int(n) == number), None)

        answer = await eventually(found)
        if self.fault is not None:
            raise self.fault
        assert answer is not None
        return answer

    async def result(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        self.call(number, method, **params)
        answer = await self.answer(number)
        assert "result" in answer, answer
        return dict(answer["result"])

    def seqs(self) -> list[int]:
        return [int(rest.split(" ")[1]) for rest in self.rests("update")]

    def places(self) -> list[int]:
        """Those of updates, and of what is the client's own."""
        return sorted(int(rest.split()[1]) for rest in self.rests("update") + self.rests("cursor"))

    def text(self) -> str:
        """What the agent has said in updates."""
        updates = [
            json.loads(rest.split(" ", 2)[2])["params"]["update"] for rest in self.rests("update")
        ]
        return "".join(
            one["content"]["text"]
            for one in updates
            if one["sessionUpdate"] == "agent_message_chunk"
        )

    async def leave(self) -> None:
        """As a front that is killed."""
        self.gone = True
        self.incoming.put_nowait(b"")
        await self.serving


@asynccontextmanager
async def front(r: Rig, name: str = "front-1", **hello: Any) -> AsyncIterator[Front]:
    made = Front(r, {"front": name, "initialize": INITIALIZE, **hello})
    await eventually(lambda: made.rests("welcome"))
    try:
        yield made
    finally:
        if not made.gone:
            await r.sessions.live.cancel_all()
            await made.leave()
        if made.fault is not None:
            raise made.fault


async def new(one: Front, number: int = 1) -> str:
    return str((await one.result(number, "session/new", cwd="/", mcpServers=[]))["sessionId"])


def words(session: str, text: str, **meta: Any) -> dict[str, Any]:
    return {
        "sessionId": session,
        "prompt": [{"type": "text", "text": text}],
        **({"_meta": meta} if meta else {}),
    }


def prompts(r: Rig) -> list[str]:
    return [text for channel in r.launcher.launched for text in channel.prompts]


async def there(r: Rig, query: str) -> None:
    """Wait until the query has a row."""

    def look() -> bool | Awaitable[bool]:
        return _any(r, query)

    await eventually(look)


async def _any(r: Rig, query: str) -> bool:
    return bool(await r.database.read(query))


async def until_there_is(r: Rig, where: str) -> None:
    """Wait until the database knows such a turn."""

    async def known() -> bool:
        return bool(await r.database.read(f"SELECT 1 FROM acp_turns WHERE {where}"))

    found: bool = await eventually(known)
    assert found
