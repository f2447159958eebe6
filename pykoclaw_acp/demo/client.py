"""ACP client of the demo, on the official Python SDK, and the agent process that it starts."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from acp import PROTOCOL_VERSION, connect_to_agent, text_block
from acp.client.connection import ClientSideConnection
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES
from acp.interfaces import Client
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    DeniedOutcome,
    Implementation,
    InitializeResponse,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)

from pykoclaw_acp import __version__

AnyUpdate = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | UsageUpdate
)

WAIT: Final = 60.0  # s for any answer; usually milliseconds, seconds for a turn
_SEQ: Final = "pykoclaw.dev/seq"
_AFTER: Final = "pykoclaw.dev/after"


@dataclass(frozen=True, slots=True)
class Arrival:
    """An update as decoded by the SDK, and its time (`time.perf_counter`)."""

    at: float
    update: AnyUpdate


@dataclass(frozen=True, slots=True)
class AskedPermission:
    """A permission request: title of the tool call, and kinds of the options in order."""

    title: str
    options: tuple[str, ...]


class Editor:
    """Callbacks of the SDK: records updates, and allows every tool once."""

    def __init__(
        self, shown: Callable[[AnyUpdate], None], asked: Callable[[AskedPermission], None]
    ) -> None:
        self.arrivals: list[Arrival] = []
        self.questions: list[AskedPermission] = []
        self.news = asyncio.Event()
        self._shown = shown
        self._asked = asked

    async def session_update(self, session_id: str, update: AnyUpdate, **meta: Any) -> None:  # noqa: ARG002  the SDK's signature
        """Record and show the update."""
        self.arrivals.append(Arrival(time.perf_counter(), update))
        self.news.set()
        self._shown(update)

    async def request_permission(
        self,
        session_id: str,  # noqa: ARG002
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **meta: Any,  # noqa: ARG002
    ) -> RequestPermissionResponse:
        """Allow it once."""
        question = AskedPermission(
            tool_call.title or tool_call.tool_call_id, tuple(str(option.kind) for option in options)
        )
        self.questions.append(question)
        self._asked(question)
        for option in options:
            if option.kind == "allow_once":
                chosen = AllowedOutcome(outcome="selected", option_id=option.option_id)
                return RequestPermissionResponse(outcome=chosen)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


class Agent:
    """A `pykoclaw-acp` process without arguments, the daemon's front, and the SDK's connection to
    it.
    """

    def __init__(self, process: asyncio.subprocess.Process, editor: Editor) -> None:
        self.process = process
        self.editor = editor
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self.sdk: ClientSideConnection = connect_to_agent(
            cast("Client", editor), process.stdin, process.stdout
        )

    @classmethod
    async def start(
        cls, editor: Editor, environment: Mapping[str, str], directory: Path, log: Path
    ) -> Agent:
        """Start the process in `directory`, with stderr appended to `log`. Ctrl-C in the terminal
        does not reach it.
        """
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pykoclaw_acp",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr,
                cwd=directory, env=environment, start_new_session=True, limit=DEFAULT_STDIO_BUFFER_LIMIT_BYTES,
            )  # fmt: skip
        return cls(process, editor)

    async def initialize(self) -> InitializeResponse:
        """Call `initialize`."""
        info = Implementation(name="pykoclaw-acp-demo", version=__version__)
        async with asyncio.timeout(WAIT):
            return await self.sdk.initialize(protocol_version=PROTOCOL_VERSION, client_info=info)

    async def new(self, directory: Path) -> str:
        """Call `session/new`; returns the session's id."""
        async with asyncio.timeout(WAIT):
            return (await self.sdk.new_session(cwd=str(directory), mcp_servers=[])).session_id

    async def load(self, session_id: str, directory: Path) -> None:
        """Call `session/load`; the history has arrived when this returns."""
        async with asyncio.timeout(WAIT):
            await self.sdk.load_session(cwd=str(directory), session_id=session_id, mcp_servers=[])

    async def resume(self, session_id: str, directory: Path, after: int) -> None:
        """Call `session/resume` with a cursor: updates after that `seq` follow."""
        cursor: dict[str, Any] = {_AFTER: after}
        async with asyncio.timeout(WAIT):
            await self.sdk.resume_session(
                cwd=str(directory), session_id=session_id, mcp_servers=[], **cursor
            )

    async def prompt(self, session_id: str, text: str) -> PromptResponse:
        """Call `session/prompt`. Raises acp.RequestError for an error response."""
        async with asyncio.timeout(WAIT):
            return await self.sdk.prompt(session_id=session_id, prompt=[text_block(text)])

    async def streaming(self, turn: asyncio.Task[PromptResponse], pieces: int) -> None:
        """Wait for this number of text chunks of the running turn; raises the turn's error if it
        ends before.
        """
        before = len(self.editor.arrivals)

        def enough() -> bool:
            return len(texts(self.editor.arrivals[before:])) >= pieces

        await self._until(lambda: enough() or turn.done(), turn)
        if not enough():
            raise RuntimeError(
                f"the turn was over before it was to be: {turn.result().stop_reason}"
            )

    async def end_of_turn(self) -> None:
        """Wait for the usage update of a turn that another client began which has its cost; it is a
        turn's last update.
        """
        await self._until(lambda: any(_ends_turn(one.update) for one in self.editor.arrivals))

    async def _until(self, seen: Callable[[], bool], *others: asyncio.Task[Any]) -> None:
        async with asyncio.timeout(WAIT):
            while not seen():
                self.editor.news.clear()
                news = asyncio.ensure_future(self.editor.news.wait())
                await asyncio.wait([news, *others], return_when=asyncio.FIRST_COMPLETED)
                news.cancel()

    async def end_of_input(self) -> tuple[int, float]:
        """Close stdin, as an editor does on exit; returns the exit status and the seconds until
        then.
        """
        begun = time.perf_counter()
        self._input.close()
        async with asyncio.timeout(WAIT):
            status = await self.process.wait()
        return status, time.perf_counter() - begun

    async def forget(self) -> None:
        """Close the connection to a dead agent, and reap the process."""
        with contextlib.suppress(ConnectionError):
            await self.sdk.close()
        self._input.close()
        await self.process.wait()


async def run_command(environment: Mapping[str, str], directory: Path, *arguments: str) -> str:
    """Run `pykoclaw-acp` with these arguments; returns its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pykoclaw_acp", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        cwd=directory, env=environment, start_new_session=True,
    )  # fmt: skip
    async with asyncio.timeout(WAIT):
        output, _ = await process.communicate()
    return output.decode(errors="replace")


def texts(arrivals: list[Arrival]) -> list[Arrival]:
    """The agent's text chunks."""
    return [arrival for arrival in arrivals if isinstance(arrival.update, AgentMessageChunk)]


def _ends_turn(update: AnyUpdate) -> bool:
    return isinstance(update, UsageUpdate) and update.cost is not None


def text_of(update: AnyUpdate) -> str:
    """Text of a chunk; empty for other updates."""
    content = getattr(update, "content", None)
    return content.text if isinstance(content, TextContentBlock) else ""


def folded(updates: Sequence[AnyUpdate]) -> list[Any]:
    """Updates with the chunks of each message merged, without states that later ones replace, so
    that live and replayed updates can be compared.
    """
    told: list[Any] = []
    for update in updates:
        if isinstance(update, UsageUpdate):
            continue
        if not isinstance(update, AgentMessageChunk | AgentThoughtChunk):
            told.append(update)
        elif (
            told
            and isinstance(told[-1], tuple)
            and told[-1][:2] == (type(update), update.message_id)
        ):
            told[-1] = (*told[-1][:2], told[-1][2] + text_of(update))
        else:
            told.append((type(update), update.message_id, text_of(update)))
    return told


def seq_of(update: AnyUpdate) -> int:
    """Position of the update in the log; 0 without one."""
    return int((update.field_meta or {}).get(_SEQ, 0))
