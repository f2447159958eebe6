"""The agent under test: how it is started, and what the rules share of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance import scripts
from tests.conformance.peer import Peer, Wire
from tests.conformance.recording import Recording
from tests.conformance.registry import unsupported

LINE_LIMIT = 64 * 1024 * 1024  # bytes; above what an agent may ever write in a line


WORD = "ananas"  # what the user says in a session that has been told


@dataclass(frozen=True, slots=True)
class Chat:
    """A session: its id, its directory, the answer that has opened it."""

    session: str
    cwd: Path
    made: dict[str, Any]

    @property
    def again(self) -> dict[str, Any]:
        """The parameters that open it again."""
        return {"sessionId": self.session, "cwd": str(self.cwd), "mcpServers": []}


@dataclass(frozen=True, slots=True)
class Told:
    """A session, and the connection on which its turns were run."""

    session: str
    cwd: Path
    recording: Recording


class Agent(ABC):
    """An agent, and everything that was exchanged with it. One connection at a time is open: an
    agent on stdio may be unable to share its data. `login` is the authentication method that works
    without a person, if there is one.
    """

    def __init__(self, root: Path, patience: float) -> None:
        self.root = root
        self.patience = patience
        self.recordings: list[Recording] = []
        self.login: str | None = None
        self.scripted = True
        self._pooled: Peer | None = None
        self._chat: Chat | None = None
        self._told: Told | None = None
        self._directories = 0
        self._toured = False

    @abstractmethod
    async def wire(self) -> Wire:
        """A new connection."""

    # --- connections

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator[Peer]:
        """A new connection, not initialized."""
        await self.rest()
        recording = Recording()
        peer = Peer(await self.wire(), recording, self.patience)
        try:
            yield peer
        finally:
            self._chat = None
            await peer.close()
            self.recordings.append(recording)

    @contextlib.asynccontextmanager
    async def fresh(self, **capabilities: Any) -> AsyncIterator[Peer]:
        """A new connection of a client with these capabilities."""
        async with self.raw() as peer:
            await peer.initialize(clientCapabilities=capabilities)
            yield peer

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Peer]:
        """A connection of a client without capabilities, maybe one that other rules had before."""
        if self._pooled is None or not self._pooled.usable:
            await self.rest()
            recording = Recording()
            self._pooled = Peer(await self.wire(), recording, self.patience)
            self.recordings.append(recording)
            await self._pooled.initialize()
        permit = self._pooled.permit
        try:
            yield self._pooled
        except BaseException:
            await self.rest()
            raise
        self._pooled.permit = permit

    async def rest(self) -> None:
        """End the connection that rules share."""
        peer, self._pooled, self._chat = self._pooled, None, None
        if peer is not None:
            await peer.close()

    # --- sessions and prompts

    def directory(self) -> Path:
        """A new directory to work in."""
        self._directories += 1
        made = self.root / f"work-{self._directories}"
        made.mkdir(parents=True)
        return made

    async def session(self, peer: Peer, **params: Any) -> tuple[str, Path]:
        """A new session, and its directory."""
        cwd = self.directory()
        made = await peer.call("session/new", **{"cwd": str(cwd), "mcpServers": [], **params})
        return str(made["sessionId"]), cwd

    async def chat(self, peer: Peer) -> Chat:
        """A session that other rules have used as well; nothing runs in it."""
        if self._chat is None or peer is not self._pooled:
            cwd = self.directory()
            made = await peer.call("session/new", cwd=str(cwd), mcpServers=[])
            self._chat = Chat(str(made["sessionId"]), cwd, made)
        return self._chat

    async def told(self) -> Told:
        """A session with two turns, of an earlier connection."""
        if self._told is None:
            async with self.fresh() as peer:
                session, cwd = await self.session(peer)
                await peer.prompt(session, f"The word is {WORD}.\n" + self.text("Remembered."))
                tool = "Reply with that word once more."
                if self.scripted:
                    tool = self.script("thinking Hm.", "write made.txt <<< x", "text Written.")
                await peer.prompt(session, tool)
                self._told = Told(session, cwd, peer.recording)
        return self._told

    def script(self, *lines: str) -> str:
        """A prompt that the scripted model plays."""
        if not self.scripted:
            unsupported("the rule needs an agent on the scripted model")
        return scripts.script(*lines)

    def text(self, answer: str) -> str:
        """A prompt whose answer contains this text."""
        if self.scripted:
            return scripts.text(answer)
        return f"Reply with exactly this text and nothing else: {answer}"

    # --- what other programs leave behind, where the agent's own rules are about that

    async def leave_transcript(self, session: str, cwd: Path, words: str) -> None:
        """A Claude session that somebody has begun in a terminal with these words."""
        unsupported("nobody knows where the agent looks for other programs' sessions")

    async def leave_conversation(self, name: str, cwd: Path) -> None:
        """A conversation of another channel that can be continued."""
        unsupported("nobody knows where the agent looks for other programs' sessions")

    async def close(self) -> None:
        await self.rest()

    async def toured(self) -> None:
        """Have recordings in which everything occurs that the agent can be brought to do."""
        from tests.conformance import tour

        if not self._toured:
            self._toured = True
            await tour.drive(self)


class CommandAgent(Agent):
    """An agent that a command line starts, for each connection anew."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], root: Path, patience: float
    ) -> None:
        super().__init__(root, patience)
        self._command = command
        self._environment = environment

    async def wire(self) -> Wire:
        log = (self.root / "agent.log").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=log, env=self._environment, cwd=self.root, limit=LINE_LIMIT,
                start_new_session=True,
            )  # fmt: skip
        return _Pipes(process)


class _Pipes:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    async def readline(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ended(self) -> None:
        await self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.wait_closed()

    async def discard(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self.ended()
