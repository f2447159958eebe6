"""One turn of pykoclaw's agent: the real CLI through the SDK, or a canned answer."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from tests.double.handle import Handle
from tests.double.rules import prompt_hash
from tests.double.tables import upsert_conversation

ALLOWED: Final = [
    "Bash",
    "Read",
    "Write",
    "Edit",
    "Glob",
    "Grep",
    "WebSearch",
    "WebFetch",
    "mcp__*",
]
SEPARATOR: Final = "\n\n---\n\n"


@dataclass(frozen=True)
class Piece:
    """What a turn gives, all of it after its end."""

    kind: Literal["text", "result"]
    text: str | None = None
    session_id: str | None = None


class ProcessFailed(Exception):
    """The CLI ended with an error: what the SDK raises as ProcessError, for instance because the
    session to resume is unknown.
    """


@dataclass(frozen=True)
class Outcome:
    """A turn's end: its texts, with a separator where tools ran in between, and its session."""

    session_id: str
    texts: list[str]


class Engine(Protocol):
    """What runs a turn. Raises ProcessFailed."""

    async def run(
        self,
        prompt: str,
        cwd: Path,
        *,
        system_prompt: str | None,
        resume: str | None,
        servers: dict[str, Any],
        partial: bool,
    ) -> Outcome: ...


@dataclass
class Canned:
    """Answers with a fixed text after a while, in which `{run}` is another word in each turn. Session
    ids are new unless one is resumed; those in `unknown` cannot be resumed.
    """

    text: str = "Done."
    seconds: float = 0.0
    unknown: set[str] = field(default_factory=set)

    async def run(
        self,
        prompt: str,
        cwd: Path,
        *,
        system_prompt: str | None,
        resume: str | None,
        servers: dict[str, Any],
        partial: bool,
    ) -> Outcome:
        await asyncio.sleep(self.seconds)
        if resume in self.unknown:
            raise ProcessFailed("No conversation found with session ID")
        text = self.text.replace("{run}", uuid.uuid4().hex)
        return Outcome(resume or str(uuid.uuid4()), [text] if text else [])


@dataclass
class Claude:
    """The real CLI, asked for one turn."""

    model: str | None = None

    async def run(
        self,
        prompt: str,
        cwd: Path,
        *,
        system_prompt: str | None,
        resume: str | None,
        servers: dict[str, Any],
        partial: bool,
    ) -> Outcome:
        from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ProcessError
        from claude_agent_sdk.types import AssistantMessage, ResultMessage, StreamEvent

        options = ClaudeAgentOptions(
            cli_path=shutil.which("claude"),
            cwd=str(cwd),
            permission_mode="bypassPermissions",
            mcp_servers=servers,
            model=self.model,
            allowed_tools=list(ALLOWED),
            setting_sources=["project", "user"],
            system_prompt=system_prompt,
            resume=resume,
            env={"SHELL": "/bin/bash"},
            include_partial_messages=partial,
        )
        texts = _Texts(partial)
        result: ResultMessage | None = None
        try:
            async with ClaudeSDKClient(options) as client:
                await client.query(prompt)
                async for message in client.receive_response():
                    if isinstance(message, StreamEvent):
                        texts.streamed(message.event)
                    elif isinstance(message, AssistantMessage):
                        texts.whole(message.content)
                    elif isinstance(message, ResultMessage):
                        result = message
        except ProcessError as error:
            raise ProcessFailed(str(error)) from error
        if result is None:
            raise RuntimeError("the turn ended without a result")
        if not texts.pieces and result.result:
            texts.pieces.append(result.result)
        return Outcome(result.session_id, texts.pieces)


class _Texts:
    """The text of a turn: deltas if they are streamed, else blocks."""

    def __init__(self, partial: bool) -> None:
        self.pieces: list[str] = []
        self._partial = partial
        self._tool_since = False

    def streamed(self, event: dict[str, Any]) -> None:
        delta = event.get("delta") or {}
        if self._partial and delta.get("type") == "text_delta":
            self._add(delta["text"])

    def whole(self, blocks: Any) -> None:
        for block in blocks:
            text = getattr(block, "text", None)
            if text is None:
                self._tool_since = self._tool_since or hasattr(block, "input")
            elif not self._partial:
                self._add(text)

    def _add(self, text: str) -> None:
        if self._tool_since and self.pieces:
            self.pieces.append(SEPARATOR)
        self._tool_since = False
        self.pieces.append(text)


async def query_agent(
    prompt: str,
    *,
    db: Handle,
    data: Path,
    conversation: str,
    engine: Engine,
    system_prompt: str | None = None,
    resume: str | None = None,
    servers: dict[str, Any] | None = None,
    partial: bool = True,
) -> AsyncIterator[Piece]:
    """A turn in the conversation's folder. The row is written at the result, before anybody gets
    any text; a turn without a result writes nothing.
    """
    cwd = data / "conversations" / conversation
    cwd.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {}
    if isinstance(engine, Claude):
        from tests.double.toolcalls import server

        given["pykoclaw"] = server(db, conversation)
        given.update(plugin_servers(db, conversation))
    given.update(servers or {})
    db.record.add("turn_started", conversation=conversation, resume=resume, prompt=prompt)
    ended = await engine.run(
        prompt,
        cwd,
        system_prompt=system_prompt,
        resume=resume,
        servers=given,
        partial=partial,
    )
    upsert_conversation(db, conversation, ended.session_id, str(cwd), prompt_hash(system_prompt))
    for text in ended.texts:
        yield Piece("text", text)
    yield Piece("result", "".join(ended.texts), ended.session_id)


def load_plugins(db: Handle) -> list[Any]:
    """All plugins, new instances; one that cannot be loaded or made is left out."""
    found = []
    for point in entry_points(group="pykoclaw.plugins"):
        try:
            found.append(point.load()())
        except Exception as error:
            db.record.add("plugin_failed", plugin=point.name, error=repr(error))
    return found


def plugin_servers(db: Handle, conversation: str) -> dict[str, Any]:
    """The MCP servers of all plugins, later ones in the place of earlier ones of the same name."""
    servers: dict[str, Any] = {}
    for plugin in load_plugins(db):
        try:
            servers.update(plugin.get_mcp_servers(db, conversation))
        except Exception as error:
            db.record.add("plugin_failed", plugin=type(plugin).__name__, error=repr(error))
    return servers
