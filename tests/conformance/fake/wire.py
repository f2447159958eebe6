"""The way to the agent in memory, with a fault on it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.conformance.agents import Agent
from tests.conformance.fake.agent import FakeAgent
from tests.conformance.fake.installation import Frame, Installation
from tests.conformance.fake.own_meta import PREFIX
from tests.conformance.peer import Wire


class Fault:
    """What goes wrong between client and agent; this one changes nothing.

    `deaf`: the agent does not notice the end of its input. `tail` is what it writes last.
    """

    logins = True
    deaf = False
    tail = b""

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        """What the agent gets instead of this message; None: nothing."""
        return frame

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> list[Frame | bytes]:
        """What the client gets instead of this message, which answers this request, if any."""
        return [frame]


class MemoryWire:
    """One connection. `opened` counts what has been said, for faults that come late."""

    def __init__(self, installation: Installation, fault: Fault) -> None:
        self._fault = fault
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._agent = FakeAgent(installation, self._emit)
        self._requests: dict[str, Frame] = {}
        self._over = asyncio.Event()
        self.memory: dict[str, Any] = {}  # of the fault

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            try:
                frame = json.loads(line)
            except ValueError:
                frame = None
            if not isinstance(frame, dict):
                self._agent.take(line)
                continue
            if "id" in frame and "method" in frame:
                self._requests[json.dumps(frame["id"])] = frame
            changed = self._fault.into(frame, self)
            if changed is not None:
                self._agent.take(line if changed is frame else json.dumps(changed).encode())

    def _emit(self, frame: Frame) -> None:
        request: Frame = {}
        if "method" not in frame:
            request = self._requests.get(json.dumps(frame["id"]), {})
        for one in self._fault.out(frame, request, self):
            self.say(one)

    def say(self, message: Frame | bytes) -> None:
        """To the client, past the fault."""
        if isinstance(message, dict):
            message = json.dumps(message).encode() + b"\n"
        self._lines.put_nowait(message)

    async def readline(self) -> bytes:
        return await self._lines.get()

    def end_input(self) -> None:
        if not self._fault.deaf:
            self._end()

    def _end(self) -> None:
        if not self._over.is_set():
            self._over.set()
            self._agent.end()
            for line in (self._fault.tail, b""):
                self._lines.put_nowait(line)

    async def ended(self) -> None:
        await self._over.wait()

    async def discard(self) -> None:
        self._end()


class MemoryAgent(Agent):
    """The agent in memory, as the rules see it."""

    def __init__(self, root: Path, patience: float, fault: Fault) -> None:
        super().__init__(root, patience)
        self._fault = fault
        self._installation = Installation(logins=fault.logins)
        self.login = "key"

    async def leave_transcript(self, session: str, cwd: Path, words: str) -> None:
        made = self._installation.new(str(cwd), session)
        made.marks, made.user_texts = {f"{PREFIX}transcript": True}, [words]
        said = {"sessionUpdate": "user_message_chunk", "messageId": session}
        content, origin = {"type": "text", "text": words}, {f"{PREFIX}origin": "terminal"}
        made.history = [{**said, "content": content, "_meta": origin}]

    async def leave_conversation(self, name: str, cwd: Path) -> None:
        made = self._installation.new(str(cwd))
        made.marks, made.user_texts = {f"{PREFIX}channel": name.partition("-")[0]}, ["Hello."]

    async def wire(self) -> Wire:
        return MemoryWire(self._installation, self._fault)
