"""Claude's process stops answering in the middle of a turn; nobody ends it but the user."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any, Final

import pytest

from tests.e2e import commands
from tests.e2e.harness import Client, Stack, script, text

HASTY: Final = (sys.executable, "-m", "tests.e2e.hasty_daemon")
TOLD: Final = "Claude's process has not answered for"
AGAIN: Final = "Claude's process answers again."
TURN: Final = script("text I begin.", "bash while [ ! -e go ]; do sleep 0.1; done", "text The end.")


async def states(stack: Stack) -> list[str]:
    """The states of all workers."""
    found = (await commands.done(stack, "workers", "list", "--json")).json
    return [one["state"] for one in found]


async def in_silent_turn(stack: Stack) -> tuple[Client, str, asyncio.Future[Any]]:
    """A session whose Claude is stopped in a turn, which its user is told."""
    await stack.daemon(program=HASTY)
    client = await stack.front()
    session = await client.new(stack.work)
    running = client.prompting(session, TURN)
    await client.until(lambda: stack.find("sleep 0.1") or stack.find("! -e go"))
    claude = stack.claude(session)
    assert claude is not None
    claude.signal(signal.SIGSTOP)
    await client.until(lambda: TOLD in client.text(session))
    return client, session, running


async def test_stopped_claude_is_told_and_goes_on(stack: Stack) -> None:
    client, session, running = await in_silent_turn(stack)

    async with asyncio.timeout(60):
        while await states(stack) != ["hanging"]:
            pass  # each takes as long as a command
    waiting = client.prompting(session, text("After it."))
    claude = stack.claude(session)
    assert claude is not None
    claude.signal(signal.SIGCONT)
    await client.until(lambda: AGAIN in client.text(session))
    (stack.work / "go").touch()
    assert (await client.answer(running))["stopReason"] == "end_turn"
    assert (await client.answer(waiting))["stopReason"] == "end_turn"
    said = client.text(session)
    assert (said.count(TOLD), said.count(AGAIN)) == (1, 1)
    assert said.endswith("After it.")
    assert await states(stack) == ["idle"]
    assert stack.claude(session) == claude, "it was not ended"
    other = await stack.front()
    await other.load(session, stack.work)
    assert other.text(session) == said


@pytest.mark.long
async def test_stopped_claude_turn_can_be_cancelled(stack: Stack) -> None:
    stack.environment["PYKOCLAW_CANCEL_GRACE"] = "1"
    client, session, running = await in_silent_turn(stack)
    client.cancel(session)
    assert (await client.answer(running))["stopReason"] == "cancelled"
    assert (await client.prompt(session, text("Anew.")))["stopReason"] == "end_turn"
    assert client.text(session).endswith("Anew.")
    assert AGAIN not in client.text(session)


@pytest.mark.long
async def test_quiet_tool_and_compaction_are_no_silence(stack: Stack) -> None:
    """Claude is asked all the time, and says nothing of it to anybody."""
    await stack.daemon(program=HASTY)
    client = await stack.front()
    session = await client.new(stack.work)
    prompt = script("bash sleep 4", "text Said.")
    assert (await client.prompt(session, prompt))["stopReason"] == "end_turn"
    assert client.text(session) == "Said."
    assert (await client.prompt(session, "/compact"))["stopReason"] == "end_turn"
    assert "Claude's process" not in client.text(session)
    assert stack.transcript(session).count("mcp_status") == 0
