"""`pykoclaw_acp.shared`, used as the author of a chat bot would."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any, Final

import pytest

from pykoclaw_acp.model import conversations
from tests.e2e.harness import Stack, script, text
from tests.e2e.other_programs import answers, dispatch, row

NAME: Final = "wa-andy-1@g.us"
BOT: Final = """
import dataclasses, json, sys
from pykoclaw_acp import shared
pieces = []
reply = shared.prompt(sys.argv[1], sys.argv[2], key=sys.argv[3] or None, on_text=pieces.append)
print(json.dumps({"pieces": pieces, **dataclasses.asdict(reply)}))
"""


async def bot(stack: Stack, prompt: str, key: str = "") -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BOT, NAME, prompt, key, env=stack.environment, cwd=stack.root,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0
    reply: dict[str, Any] = json.loads(said)
    return reply


@pytest.mark.long
async def test_a_bot_prompts_through_the_daemon(stack: Stack) -> None:
    first = await bot(stack, text("Hello from the daemon."))
    assert first["text"] == "".join(first["pieces"]) == "Hello from the daemon."
    assert (first["state"], first["error"], first["joined"]) == ("done", None, False)
    assert first["session"] == conversations.id_of(NAME)
    second = await bot(stack, text("Again."), "message-7")
    assert answers(stack) == ["Hello from the daemon."]
    same = await bot(stack, text("Again."), "message-7")
    assert (same["turn"], same["text"], same["joined"]) == (second["turn"], "Again.", True)
    client = await stack.front()
    await client.load(first["session"], stack.work)
    assert client.text(first["session"]) == "Hello from the daemon.Again."
    await dispatch(stack, NAME, text("A turn of its own."))  # as before, without the daemon
    assert answers(stack) == ["Hello from the daemon.", "Again."]
    third = await bot(stack, text("Third."))
    assert third["text"] == "Third."
    assert answers(stack) == ["Hello from the daemon.", "Again.", "A turn of its own."]
    fourth = await bot(stack, script("text I look.", "bash true", "text Done."))
    assert fourth["text"] == "".join(fourth["pieces"]) == "I look.\n\nDone."
    _, folder = row(stack, NAME)
    assert folder == str(stack.data / "conversations" / NAME)


@pytest.mark.long
async def test_bot_gets_what_a_subagent_found(stack: Stack) -> None:
    agent = {"description": "look", "subagent_type": "claude", "prompt": script("text Eight.")}
    left = script(
        f"tool Agent {json.dumps(agent)}", "text It looks.", "stop end_turn", "text Done."
    )
    reply = await bot(stack, left)
    assert (reply["state"], reply["text"]) == ("done", "It looks.\n\nDone.")
    assert "".join(reply["pieces"]).rstrip("\n") == reply["text"]
    assert reply["goes_on"] is False


@pytest.mark.long
async def test_a_prompt_outlives_the_daemon_and_runs_once(stack: Stack) -> None:
    await stack.daemon()
    gate = stack.root / "gate"
    going = asyncio.ensure_future(
        bot(stack, script(f"bash while [ ! -e {gate} ]; do sleep 0.05; done", "text Done."))
    )
    session = conversations.id_of(NAME)
    client = await stack.front()
    await client.until(
        lambda: (
            bool(stack.rows("SELECT 1 FROM acp_permissions WHERE outcome IS NULL"))
            or bool(stack.rows("SELECT 1 FROM acp_turns WHERE state = 'running'"))
        )
    )
    await client.load(session, stack.work)
    await client.until(lambda: client.of(session, "tool_call"))
    await stack.end_daemon(signal.SIGKILL)
    gate.touch()
    reply = await going
    assert (reply["state"], reply["text"]) == ("done", "Done.")
    assert len(stack.rows("SELECT 1 FROM acp_turns WHERE origin = 'client'")) == 1


@pytest.mark.long
async def test_queued_prompt_of_waiting_caller_outlives_everything(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    await client.initialize()
    lost = asyncio.ensure_future(bot(stack, script("bash tail -f /dev/null", "text Never.")))
    await client.until(lambda: states(stack) == ["running"])
    going = asyncio.ensure_future(bot(stack, script("text Done.")))
    await client.until(lambda: states(stack) == ["running", "queued"])
    worker = stack.worker(conversations.id_of(NAME))
    await stack.end_daemon(signal.SIGKILL)
    worker.kill()
    replies = [await one for one in (lost, going)]
    assert [one["state"] for one in replies] == ["failed", "done"], replies


def states(stack: Stack) -> list[str]:
    return [one["state"] for one in stack.rows("SELECT state FROM acp_turns ORDER BY position")]
