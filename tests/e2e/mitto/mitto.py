"""`mitto web` with one workspace: one agent process for all its conversations, and for its own
helpers.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, Final

from tests.e2e.harness import RpcError, ServerGone, Stack
from tests.e2e.harness.client import CANCELLED, selected
from tests.e2e.harness.stack import PROGRAM
from tests.e2e.mitto import reading
from tests.e2e.mitto import wire as wires
from tests.e2e.mitto.conversation import Conversation
from tests.e2e.mitto.wire import Overdue, Wire

INITIALIZE: Final = {
    "clientCapabilities": {"auth": {}, "fs": {"readTextFile": True, "writeTextFile": True}},
    "clientInfo": {"name": "mitto", "title": "Mitto", "version": "dev"},
    "protocolVersion": 1,
}
AUXILIARY: Final = 4  # sessions that it makes at each start, beside the user's
OWN_PROCESS: Final = ("sh", "-c", '"$0" "$@"; exit $?', *PROGRAM)  # the parent of the front
RESTARTS: Final = 3
RESTARTING: Final = "The AI agent process stopped unexpectedly. Restarting (attempt 1 of 3)..."
RETRYING: Final = "AI agent restarted. Retrying your message automatically..."


class Mitto:
    """Start it with `open`. `approves`: the default of all its faces, which take the first option
    that allows.
    """

    def __init__(self, stack: Stack, **environment: str) -> None:
        self.stack = stack
        self.approves = True
        self.browser = True
        self.methods = ["resume", "load"]  # that it tries before it makes a new session
        self.wraps_again = False  # a prompt that it sends again after a restart
        self.program: tuple[str, ...] = PROGRAM
        self.environment = {
            "MITTO_SESSION_ID": "",
            "MITTO_WORKSPACE_UUID": "",
            "MITTO_DATA_DIR": "/x",
            **environment,
        }
        self.wire: Wire | None = None
        self.capabilities: dict[str, Any] = {}
        self.auxiliary: list[
            str
        ] = []  # ids of its own sessions on this process; it never closes any
        self.replaced = 0  # questions that a second one of the same session has pushed aside
        self._shown: dict[str, Conversation] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._starting = asyncio.Lock()

    # --- the process

    async def open(self, *conversations: Conversation) -> None:
        """Start the process if there is none; then, in the same moment, all that Mitto asks of it
        at a start.
        """
        async with self._starting:  # all of the workspace wait
            fresh = self.wire is None
            try:
                wire = self.wire or await self._start()
            except (ServerGone, RpcError):
                for conversation in conversations:
                    conversation.failed_to_start()
                raise
        helpers = [self._make_helper(wire) for _ in range(AUXILIARY if fresh else 0)]
        await asyncio.gather(
            *helpers, *(self._open(wire, conversation) for conversation in conversations)
        )

    async def shutdown(self) -> None:
        """Idle for six minutes, or the configuration was changed, or Mitto ends: it is all the same
        to the agent.
        """
        assert self.wire is not None
        await self.wire.kill_group()
        self._forget()

    async def be_killed(self, number: signal.Signals) -> None:
        """SIGTERM of Mitto, which ends its process as ever, or SIGKILL, of which that reads the end of
        its input: run it in a process of its own (`OWN_PROCESS`).
        """
        assert self.wire is not None
        if number == signal.SIGKILL:
            await self.wire.close()
        else:
            await self.wire.kill_group()
        for conversation in self._shown.values():
            conversation.killed()
        self._forget()

    def suspend(self, conversation: Conversation) -> None:
        """Idle for five minutes without a window, while the process serves others: the agent is told
        nothing, and what it sends of the session is dropped.
        """
        assert self.wire is not None
        assert conversation.session is not None
        conversation.closed()
        del self._shown[conversation.session]
        self.wire.lost.add(conversation.session)

    async def _start(self) -> Wire:
        wire = await self.stack.connect(Wire, *self.program, **self.environment)
        wire.show, wire.permit = self._show, self._permit
        answer = await wire.call("initialize", **INITIALIZE)
        assert isinstance(answer["protocolVersion"], int), "a string breaks the start"
        self.capabilities = answer["agentCapabilities"]
        self.wire = wire
        return wire

    def _forget(self) -> None:
        self.wire = None
        for conversation in self._shown.values():
            conversation.closed()
        self._shown.clear()
        self._asked.clear()
        self.auxiliary = []

    # --- sessions

    @property
    def _place(self) -> dict[str, Any]:
        return {"cwd": str(self.stack.work)}

    async def _make_helper(self, wire: Wire) -> None:
        made = await wire.timed(wires.NEW_AUXILIARY, "session/new", mcpServers=[], **self._place)
        self.auxiliary.append(made["sessionId"])

    async def _open(self, wire: Wire, conversation: Conversation) -> None:
        """Resume, else load, else a new session, whose id takes the place of the old one: no error
        is special.
        """
        can = {
            "resume": "resume" in self.capabilities["sessionCapabilities"],
            "load": self.capabilities["loadSession"],
        }
        for method in self.methods:
            if conversation.resumable and can[method] and conversation.session not in self._shown:
                await self._try(wire, conversation, method)
        if conversation.session not in self._shown:
            result = await wire.timed(wires.NEW, "session/new", mcpServers=[], **self._place)
            self._register(conversation, "new", result["sessionId"], result)

    async def _try(self, wire: Wire, conversation: Conversation, method: str) -> None:
        assert conversation.session is not None
        limit = wires.RESUME if method == "resume" else wires.LOAD
        servers: dict[str, Any] = {} if method == "resume" else {"mcpServers": []}
        try:
            result = await wire.timed(
                limit, f"session/{method}", sessionId=conversation.session, **self._place, **servers
            )
        except (RpcError, Overdue):
            return
        self._register(conversation, method, conversation.session, result)

    def _register(
        self, conversation: Conversation, method: str, session: str, result: dict[str, Any]
    ) -> None:
        conversation.opened(method, session, result)
        self._shown[session] = conversation

    # --- prompts

    async def prompt(
        self, conversation: Conversation, words: str, *blocks: dict[str, Any]
    ) -> str | None:
        """A prompt of the user's; its stop reason, or None if it failed and the user reads why."""
        if self.wire is None:
            await self.open(conversation)
        content = [*blocks, {"type": "text", "text": conversation.wrap(words)}]
        conversation.begin_turn()
        for attempt in range(RESTARTS + 1):
            assert self.wire is not None
            turn = self.wire.begin("session/prompt", sessionId=conversation.session, prompt=content)
            try:
                reason = str((await self.wire.answer(turn))["stopReason"])
            except RpcError as error:
                conversation.errors.append(reading.read(error))
                conversation.end_turn(words)
                return None
            except ServerGone:
                if attempt == RESTARTS:
                    raise
                await self._restart(conversation)
                if self.wraps_again:
                    content[-1] = {"type": "text", "text": conversation.wrap(words)}
            else:
                conversation.end_turn(words)
                return reason
        raise AssertionError

    async def _restart(self, conversation: Conversation) -> None:
        """The process died in a turn: a new one, the session again, and the very same prompt."""
        conversation.note(RESTARTING)
        self._forget()
        await self.open(conversation)
        conversation.note(RETRYING)

    async def help_itself(self, session: str, prompt: str) -> str:
        """A prompt of Mitto's own in one of its sessions."""
        assert self.wire is not None
        return str((await self.wire.prompt(session, prompt))["stopReason"])

    def stop(self, conversation: Conversation) -> None:
        """The user's Stop: two milliseconds later the next prompt may come."""
        assert self.wire is not None
        assert conversation.session is not None
        self.wire.cancel(conversation.session)
        question = self._asked.pop(conversation.session, None)
        if question is not None:
            self.wire.reply(question, CANCELLED)

    # --- questions

    def question(self, conversation: Conversation) -> dict[str, Any] | None:
        """The question that the user sees."""
        return self._asked.get(conversation.session or "")

    def answer(self, conversation: Conversation, option: str) -> None:
        """The user's choice."""
        assert self.wire is not None
        self.wire.reply(self._asked.pop(conversation.session or ""), selected(option))

    def expire(self, conversation: Conversation) -> None:
        """Nobody has chosen for 300 s."""
        assert self.wire is not None
        self.wire.reply(self._asked.pop(conversation.session or ""), CANCELLED)

    def _permit(self, params: dict[str, Any]) -> dict[str, Any] | None:
        assert self.wire is not None
        if self.approves:
            allows = [
                option
                for option in params["options"]
                if option["kind"] in ("allow_once", "allow_always")
            ]
            return selected(allows[0]["optionId"])
        if not self.browser:
            return CANCELLED
        before = self._asked.get(params["sessionId"])
        self._asked[params["sessionId"]] = self.wire.questions[-1]
        if before is not None and before["id"] not in self.wire.withdrawn:
            self.replaced += 1
            self.wire.reply(before, CANCELLED)
        return None

    def _show(self, session: str, update: dict[str, Any]) -> None:
        if session in self._shown:
            self._shown[session].show(update)
