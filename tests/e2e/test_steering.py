"""Steering with the real CLI: a prompt goes into the turn that runs, or after it, once, whoever dies."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.hooks import block_prompts
from tests.waiting import not_within

STEER = {"pykoclaw.dev/steering": "steer"}


def steer(client: Client, session: str, words: str, **meta: Any) -> asyncio.Future[dict[str, Any]]:
    block = {"type": "text", "text": words}
    return client.begin("session/prompt", sessionId=session, prompt=[block], _meta=meta or STEER)


def times(stack: Stack, words: str) -> int:
    """How often these words are in the newest request to the model."""
    return json.dumps(stack.asked()[-1]["messages"]).count(words)


async def test_prompt_enters_turn_between_its_tool_calls(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    running = client.prompting(session, script("bash sleep 2", "bash echo second", "text Done."))
    await client.until(lambda: bool(client.of(session, "tool_call")))
    steered = steer(client, session, "Look out.")
    other = await client.call(
        "_session/steering", sessionId=session, prompt=[{"type": "text", "text": "And hurry."}]
    )
    assert other["outcome"] == "injected"
    answer = await client.answer(steered)
    assert answer["_meta"] == {"pykoclaw.dev/steering": "injected"}
    assert answer["stopReason"] == (await client.answer(running))["stopReason"] == "end_turn"
    assert client.text(session) == "Done.", "one turn"
    assert times(shared, "Look out.") == 1
    assert shared.transcript(session).count('"type":"queued_command"') == 2

    late = client.prompting(session, script("repeat 60x50ms w{n} "))
    await client.until(lambda: "w5" in client.text(session))
    steered = steer(client, session, text("After it."))
    queued = client.prompting(session, text("The last."))
    assert (await client.answer(steered))["_meta"] == {"pykoclaw.dev/steering": "queued"}
    await client.answer(late)
    await client.answer(queued)
    assert client.text(session).endswith("w60After it.The last.")
    again = await client.answer(steer(client, session, text("Alone.")))
    assert again["_meta"] == {"pykoclaw.dev/steering": "startedNewTurn"}
    await client.load(session, shared.work)
    shown = client.of(session, "user_message_chunk", "tool_call", "tool_call_update")
    kinds = [(one["sessionUpdate"], one.get("status")) for one in shown[1:6]]
    assert kinds[:2] == [("tool_call", "in_progress"), ("tool_call_update", "completed")]
    said = [one["content"]["text"] for one in client.of(session, "user_message_chunk")]
    assert said[1:3] == ["Look out.", "And hurry."], "shown where they were taken up"
    assert kinds[2][0] == "user_message_chunk"


async def test_injected_prompt_is_answered_before_response(shared: Stack) -> None:
    """Claude takes it up only when it has written its answer."""
    client = await shared.start()
    session = await client.new(shared.work)
    running = client.prompting(session, script("repeat 30x50ms w{n} "))
    await client.until(lambda: "w5" in client.text(session))
    block = {"type": "text", "text": text("Steered.")}
    given = await client.call("_session/steering", sessionId=session, prompt=[block])
    assert given == {"outcome": "injected", "_meta": {"pykoclaw.dev/steering": "injected"}}
    assert (await client.answer(running))["stopReason"] == "end_turn"
    assert client.text(session).endswith("w30Steered.")


async def test_cancel_takes_back_what_was_not_taken_up(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work, _meta=STEER)
    running = client.prompting(session, script("bash tail -f /dev/null", "text No."))
    await client.until(lambda: bool(client.of(session, "tool_call")))
    by_setting = client.prompting(session, "By the session's setting.")
    given = (
        "SELECT 1 FROM acp_turns WHERE state IN ('dispatched', 'running') AND acp_session_id = ?"
    )
    await client.until(lambda: len(shared.rows(given, session)) == 2)
    client.cancel(session)
    for one in (running, by_setting):
        assert (await client.answer(one))["stopReason"] == "cancelled"
    await client.prompt(session, text("Next."))
    assert times(shared, "By the session's setting.") == 0
    said = client.text(session)
    assert said.startswith("\n\nCancelled.\n\n")
    assert said.count("Cancelled before it was sent to Claude: “By the session's setting.”") == 1
    assert said.endswith("\n\nNext.")


@pytest.mark.long
async def test_cancelled_prompt_spares_turn_of_stopped_claude(stack: Stack) -> None:
    stack.environment["PYKOCLAW_CANCEL_GRACE"] = "1"
    client = await stack.start()
    session = await client.new(stack.work)
    turn = script("bash while [ ! -e go ]; do sleep 0.1; done", "text Done.")
    running = client.prompting(session, turn)
    await client.until(lambda: bool(client.of(session, "tool_call")))
    claude = stack.claude(session)
    assert claude is not None
    claude.signal(signal.SIGSTOP)
    block = {"type": "text", "text": "Look out."}
    message, steered = client.request(
        "session/prompt", sessionId=session, prompt=[block], _meta=STEER
    )
    client.send(message)
    given = "SELECT 1 FROM acp_turns WHERE state IN ('dispatched', 'running')"
    await client.until(lambda: len(stack.rows(given)) == 2)
    client.notify("$/cancel_request", requestId=message["id"])
    await not_within(lambda: running.done() or steered.done(), 4)
    claude.signal(signal.SIGCONT)
    assert (await client.answer(steered))["stopReason"] == "cancelled"
    (stack.work / "go").touch()
    assert (await client.answer(running))["stopReason"] == "end_turn"
    said = "Done.\n\nCancelled before it was sent to Claude: “Look out.”\n\n"
    await client.until(lambda: client.text(session).endswith(said))
    assert times(stack, "Look out.") == 0
    assert stack.claude(session) == claude, "it was not ended"


@pytest.mark.long
async def test_steered_prompt_that_hook_blocks_ends(stack: Stack) -> None:
    block_prompts(stack)
    client = await stack.start()
    session = await client.new(stack.work)
    running = client.prompting(session, script("bash sleep 2", "bash echo second", "text Done."))
    await client.until(lambda: bool(client.of(session, "tool_call")))
    given = [steer(client, session, words) for words in ("Allowed.", "forbidden", "And this.")]
    for one in (running, *given):
        assert (await client.answer(one))["stopReason"] == "end_turn"
    assert client.text(session).count("A hook blocked this") == 1
    for words in ("Late.", "forbidden"):
        running = client.prompting(session, script("repeat 60x50ms w{n} "))
        await client.until(lambda: "w5" in client.text(session)[-40:])
        given = [steer(client, session, one) for one in (words, "Between.", "The last.")]
        for one in (running, *given):
            assert (await client.answer(one))["stopReason"] == "end_turn"
    assert client.text(session).count("A hook blocked this") == 2


@pytest.mark.long
async def test_steered_prompt_is_given_once_whoever_dies(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    await client.initialize()
    session = await client.new(stack.work)
    running = client.prompting(session, script("bash sleep 6", "bash echo second", "text Done."))
    await client.until(lambda: bool(client.of(session, "tool_call")))
    steered = steer(client, session, "Look out.")
    await client.until(
        lambda: bool(stack.rows("SELECT 1 FROM acp_turns WHERE state = 'dispatched'"))
    )
    await stack.end_daemon(signal.SIGKILL)  # the front starts the next one
    assert (await client.answer(steered))["_meta"] == {"pykoclaw.dev/steering": "injected"}
    assert (await client.answer(running))["stopReason"] == "end_turn"
    assert times(stack, "Look out.") == 1

    running = client.prompting(session, script("bash tail -f /dev/null", "text No."))
    await client.until(lambda: len(client.of(session, "tool_call")) == 3)
    steered = steer(client, session, "Not lost.")
    await client.until(
        lambda: bool(stack.rows("SELECT 1 FROM acp_turns WHERE state = 'dispatched'"))
    )
    stack.worker(session).kill()
    for one in (running, steered):
        await asyncio.wait([one])
        assert one.exception() is not None
    assert steered.exception().data["turnState"] == "unknown"  # type: ignore[union-attr]
    await client.load(session, stack.work)
    said = [one["content"]["text"] for one in client.of(session, "user_message_chunk")]
    assert said.count("Not lost.") == 1
    await client.close()
