"""Cancels that cross what Claude does meanwhile: the turn ends, or takes a prompt up, or another begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from claude_agent_sdk import (
    ClaudeSDKClient,
    Message,
    SystemMessage,
    TextBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from pykoclaw_acp.channel.frames import Prompt, TurnEnded, TurnStarted
from pykoclaw_acp.channel.requests import StopSubagents
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.worker import raw_frames, sdk_private
from pykoclaw_acp.worker.claude import INTERRUPT_AGAIN, ClaudeSession
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.outbox import Outbox
from tests.unit.sdk_messages import result, whole
from tests.waiting import eventually, pass_loop_time
from tests.workers import spec

INIT = SystemMessage(subtype="init", data={})
BLOCKED = {"prompt_submit_outcome": {"kind": "blocked_by_hook"}}
BLOCKS = [{"type": "text", "text": "Look."}]


class Cli:
    """What the CLI says, and the frames that the worker makes of it; it drops each prompt that is
    taken back, after `meanwhile`, unless it has taken that up by then.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: asyncio.Queue[Message | dict[str, Any]] = asyncio.Queue()
        self.told: list[Any] = []
        self.interrupts = 0
        self.taken_up = False
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        calls = cast("DatabaseCalls", None)
        self.claude = ClaudeSession(spec(directory), str(directory), cast("Outbox", self), calls)
        self.claude.client = cast("ClaudeSDKClient", self)
        monkeypatch.setattr(raw_frames, "received", self._received)
        monkeypatch.setattr(sdk_private, "cancel_message", self._drop)

    def put(self, frame: object) -> None:
        self.told.append(frame)

    async def query(self, _: object) -> None:
        pass

    async def interrupt(self) -> None:
        self.interrupts += 1

    async def _received(
        self, *_: object
    ) -> AsyncIterator[tuple[Message | None, raw_frames.RawFrame]]:
        while True:
            said = await self.lines.get()
            yield (None, said) if isinstance(said, dict) else (said, raw_frames.NO_FRAME)

    async def _drop(self, *_: object) -> bool:
        if self.meanwhile is not None:
            await self.meanwhile()
        return not self.taken_up

    @property
    def ends(self) -> list[tuple[str, str | None]]:
        ended = [one for one in self.told if isinstance(one, TurnEnded)]
        return [(one.turn_id, one.stop_reason) for one in ended]

    def asked(self) -> list[PermissionRequest]:
        return [one for one in self.told if isinstance(one, PermissionRequest)]

    async def end(self, turn_id: str) -> None:
        self.lines.put_nowait(result(user_message_uuids=[turn_id]))
        await eventually(lambda: (turn_id, "end_turn") in self.ends)

    def begin(self, *turn_ids: str) -> None:
        for one in turn_ids:
            self._follows(one, "started")

    def complete(self, turn_id: str) -> None:
        self._follows(turn_id, "completed")

    def _follows(self, turn_id: str, state: str) -> None:
        self.lines.put_nowait(
            {"type": "command_lifecycle", "state": state, "command_uuid": turn_id}
        )

    async def cancelled(self, stopping: asyncio.Task[Any]) -> None:
        """The end of an interrupt, once a turn has ended by it."""
        await eventually(lambda: any(end[1] == "cancelled" for end in self.ends))
        pass_loop_time(INTERRUPT_AGAIN)
        await stopping

    async def steer(self, turn_id: str) -> None:
        await self.claude.prompt(Steer(epoch=1, turn_id=turn_id, content=BLOCKS, said=[]))


@pytest.fixture
async def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cli]:
    made = Cli(tmp_path, monkeypatch)
    reading = asyncio.create_task(made.claude.run())
    await made.claude.prompt(Prompt(epoch=1, turn_id="host", content=BLOCKS))
    yield made
    reading.cancel()


@pytest.mark.parametrize("late", [False, True])
async def test_prompt_that_is_taken_back_ends_once(cli: Cli, late: bool) -> None:
    """`late`: the running turn's result comes between the request and its answer."""
    await cli.steer("taken back")
    if late:
        cli.meanwhile = lambda: cli.end("host")
    await cli.claude.interrupt("taken back")
    if not late:
        await cli.end("host")
    assert sorted(cli.ends) == [("host", "end_turn"), ("taken back", "cancelled")]
    assert (cli.claude.turns.ids, cli.interrupts) == ([], 0)


@pytest.mark.parametrize("begun", [False, True])
async def test_prompt_behind_one_that_is_taken_back_runs(cli: Cli, begun: bool) -> None:
    """`begun`: its first words come before the answer, too."""

    async def meanwhile() -> None:
        await cli.end("host")
        if begun:
            cli.lines.put_nowait(whole(TextBlock("I see.")))
            await eventually(lambda: any(isinstance(one, TurnStarted) for one in cli.told))

    await cli.steer("taken back")
    await cli.steer("next")
    cli.meanwhile = meanwhile
    await cli.claude.interrupt("taken back")
    assert cli.claude.turns.ids == ["next"]
    await cli.end("next")
    assert cli.claude.turns.ids == []


async def test_next_prompt_begins_before_answer(cli: Cli) -> None:
    """The CLI drops one and begins with the next before the worker knows that the first is dropped."""

    async def meanwhile() -> None:
        await cli.end("host")
        cli.begin("next", "last")
        await eventually(lambda: sum(isinstance(one, TurnStarted) for one in cli.told) == 2)

    for one in ("taken back", "next", "last"):
        await cli.steer(one)
    cli.meanwhile = meanwhile
    await cli.claude.interrupt("taken back")
    assert cli.claude.turns.ids == ["next"]
    cli.lines.put_nowait(whole(TextBlock("I see.")))
    cli.lines.put_nowait(result(user_message_uuids=["next", "last"]))
    await eventually(lambda: ("last", "end_turn") in cli.ends)
    assert cli.ends[1:] == [("taken back", "cancelled"), ("next", "end_turn"), ("last", "end_turn")]
    assert cli.claude.turns.ids == []


@pytest.mark.parametrize("into", [True, False], ids=["host", "own"])
async def test_prompt_taken_up_meanwhile_is_interrupted(cli: Cli, into: bool) -> None:
    """`into`: the running turn has taken it up, otherwise one of its own, once that has ended."""
    cli.lines.put_nowait(whole(TextBlock("Hm.")))
    await eventually(lambda: cli.claude.turns.running)
    await cli.steer("steered")
    cli.taken_up = True
    stopping = asyncio.create_task(cli.claude.interrupt("steered"))
    await asyncio.sleep(0)
    if into:
        cli.lines.put_nowait(UserMessage(content="Look.", uuid="steered"))
        await eventually(lambda: cli.claude.steered.was_taken("steered"))
    else:
        await cli.end("host")
    pass_loop_time(INTERRUPT_AGAIN)
    await eventually(lambda: cli.interrupts)
    answered = ["host", "steered"] if into else ["steered"]
    cli.lines.put_nowait(result(terminal_reason="aborted_streaming", user_message_uuids=answered))
    await cli.cancelled(stopping)
    assert dict(cli.ends) == {"host": "cancelled" if into else "end_turn", "steered": "cancelled"}


@pytest.mark.parametrize("running", [False, True], ids=["idle", "next"])
async def test_cancel_after_end_stops_subagents(cli: Cli, running: bool) -> None:
    """The turn ends while its cancel is on the way. `running`: by then the next one runs."""
    cli.lines.put_nowait(whole(ToolUseBlock("call", "Agent", {"subagent_type": "claude"})))
    launched = UserMessage(
        content=[ToolResultBlock("call", "Launched.")],
        tool_use_result={"isAsync": True, "agentId": "a1"},
    )
    cli.lines.put_nowait(launched)
    await cli.end("host")
    if running:
        await cli.claude.prompt(Prompt(epoch=1, turn_id="next", content=BLOCKS))
    await cli.claude.interrupt("host")
    assert cli.interrupts == (not running)


@pytest.mark.parametrize("begins", [False, True], ids=["stopped", "begins"])
async def test_stop_ends_turn_subagent_began(cli: Cli, begins: bool) -> None:
    """A subagent has asked after the prompt's end. `begins`: Claude hears of its end meanwhile, in a
    turn of its own, which goes by the same name.
    """
    cli.lines.put_nowait(whole(ToolUseBlock("call", "Bash", {}), parent="agent"))
    await cli.end("host")
    context = ToolPermissionContext(tool_use_id="call")
    asking = asyncio.create_task(
        cli.claude.permissions.can_use_tool("Bash", {"command": "ls"}, context)
    )
    [request] = await eventually(cli.asked)
    turn_id = request.turn_id
    if begins:
        cli.lines.put_nowait(INIT)
        await eventually(cli.lines.empty)
    stopping = asyncio.create_task(cli.claude.interrupt(turn_id))
    if begins:
        await eventually(lambda: cli.interrupts)
        assert cli.claude.turns.ids == [turn_id]
        cli.lines.put_nowait(result(terminal_reason="aborted_tools", origin={"kind": "x"}))
    await cli.cancelled(stopping)
    assert cli.ends[-1] == (turn_id, "cancelled")
    assert (bool(cli.claude.turns), cli.interrupts, cli.claude.background) == (False, 1, 0)
    asking.cancel()


@pytest.mark.parametrize("by", ["turn", "session"])
async def test_cancel_meets_turn_claude_began(cli: Cli, by: str) -> None:
    """Claude begins a turn by itself while the cancel is on the way. `by`: what is cancelled."""
    await cli.end("host")
    cli.lines.put_nowait(INIT)
    await eventually(lambda: cli.claude.turns.running)
    request = StopSubagents(epoch=1, request=7)
    cancel = cli.claude.interrupt("host") if by == "turn" else cli.claude.carry_out(request)
    stopping = asyncio.ensure_future(cancel)
    await eventually(lambda: cli.interrupts)
    cli.lines.put_nowait(result(terminal_reason="aborted_streaming", origin={"kind": "x"}))
    await cli.cancelled(stopping)
    assert [end[1] for end in cli.ends] == ["end_turn", "cancelled"]


async def test_blocked_prompt_ends_with_its_host(cli: Cli) -> None:
    """A hook blocks it: the CLI begins with it, and repeats it never."""
    cli.lines.put_nowait(whole(TextBlock("Hm.")))
    await cli.steer("blocked")
    await eventually(lambda: cli.claude.turns.running)
    cli.begin("blocked")
    cli.lines.put_nowait(SystemMessage(subtype="informational", data=BLOCKED))
    await cli.end("host")
    assert cli.ends == [("host", "end_turn"), ("blocked", "end_turn")]
    assert cli.claude.turns.ids == []
    assert not any(one.untaken for one in cli.told if isinstance(one, TurnEnded))


@pytest.mark.parametrize("named", [False, True], ids=["own", "prompt"])
async def test_prompt_blocked_in_own_turn_ends(cli: Cli, named: bool) -> None:
    """A hook blocks a prompt that the CLI takes up in Claude's own turn, of whose result it is no part.
    `named`: that turn goes by the prompt's name, as it came before the first words.
    """
    await cli.end("host")
    plain = Prompt(epoch=1, turn_id="plain", content=BLOCKS)
    if named:
        await cli.claude.prompt(plain)
    cli.lines.put_nowait(INIT)
    cli.lines.put_nowait(whole(TextBlock("A job has ended.")))
    await eventually(lambda: cli.claude.turns.running)
    if not named:
        await cli.claude.prompt(plain)
    cli.begin("plain")
    cli.complete("plain")
    cli.lines.put_nowait(SystemMessage(subtype="informational", data=BLOCKED))
    cli.lines.put_nowait(result(origin={"kind": "task-notification"}))
    await eventually(lambda: ("plain", "end_turn") in cli.ends)
    assert cli.claude.turns.ids == []
    untaken = [one.turn_id for one in cli.told if isinstance(one, TurnEnded) and one.untaken]
    assert (untaken, len(cli.ends)) == (["plain"], 2 if named else 3)


async def test_prompts_that_run_together_all_end(cli: Cli) -> None:
    """The CLI repeats those in the middle before their turn."""
    late = ["first", "second", "third"]
    for one in late:
        await cli.steer(one)
    await cli.end("host")
    for one in late[:-1]:
        cli.lines.put_nowait(UserMessage(content="Look.", uuid=one))
    cli.begin(*late)
    cli.lines.put_nowait(whole(TextBlock("I see.")))
    cli.lines.put_nowait(result(user_message_uuids=late))
    await eventually(lambda: len(cli.ends) == 4)
    assert cli.ends == [(one, "end_turn") for one in ("host", *late)]
    assert cli.claude.turns.ids == []
