"""Cancelling: at whatever moment, the prompt is answered `cancelled` soon, and the
session goes on.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import time

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.logs import logs
from tests.e2e.harness.seen import seen
from tests.folds import told

SOON = 5.0  # seconds; far below the 10 s after which an interrupted worker would be killed

ENDLESS = script("repeat 5000x20ms word{n} ")


def dispatched(stack: Stack, client: Client, turns: int) -> bool:
    return stack.server_log(client).count('"turn_dispatched"') == turns


def states(stack: Stack, session: str) -> list[str]:
    """Of the session's turns."""
    rows = stack.rows(
        "SELECT state FROM acp_turns WHERE acp_session_id = ? ORDER BY position", session
    )
    return [row["state"] for row in rows]


async def cancelled(client: Client, session: str, prompt: str) -> None:
    """Send a prompt that streams, cancel it in the middle."""
    pending = client.prompting(session, prompt)
    await client.until(lambda: "word3" in client.text(session))
    begun = time.monotonic()
    client.cancel(session)
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    assert time.monotonic() - begun < SOON


async def goes_on(stack: Stack, client: Client, session: str, *before: str) -> None:
    """The session answers, and Claude knows the prompts before."""
    assert (await client.prompt(session, text("It goes on.")))["stopReason"] == "end_turn"
    assert client.text(session).endswith("It goes on.")
    assert stack.asked()[-1]["user_texts"] == [*before, text("It goes on.")]


@pytest.mark.long
async def test_in_the_middle_of_the_answer(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await cancelled(client, session, ENDLESS)
    await goes_on(shared, client, session, ENDLESS)
    said = " ".join(
        message["text"]
        for message in shared.asked()[-1]["messages"]
        if message["role"] == "assistant"
    )
    assert "word3" in said, "Claude does not know what it had said"


async def test_in_the_middle_of_a_tool(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    prompt = script("bash touch begun; sleep 311", "text Never said.")
    pending = client.prompting(session, prompt)
    await client.until(lambda: (shared.work / "begun").exists() and shared.find("sleep 311"))
    client.cancel(session)
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    await client.until(lambda: not shared.find("sleep 311"), SOON)
    assert client.of(session, "tool_call_update")[-1]["status"] == "failed"
    assert "Never said." not in client.text(session)
    await goes_on(shared, client, session, prompt)


@pytest.mark.parametrize(
    "method", ["session/cancel", pytest.param("$/cancel_request", marks=pytest.mark.long)]
)
async def test_before_the_prompt_leaves(shared: Stack, method: str) -> None:
    """Cancel in the same write as the prompt: Claude is never asked."""
    client = await shared.start()
    session = await client.new(shared.work)
    message, pending = client.request(
        "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text("Never said.")}]
    )
    params = {"sessionId": session} if method == "session/cancel" else {"requestId": message["id"]}
    client.send(message, {"jsonrpc": "2.0", "method": method, "params": params})
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    assert shared.asked() == []
    assert states(shared, session) == ["cancelled"]
    await goes_on(shared, client, session)


async def test_right_after_the_prompt_left(shared: Stack) -> None:
    """When the CLI has the prompt, and has not taken it up yet."""
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, text("Warm."))
    for turn in range(3):
        pending = client.prompting(session, ENDLESS)
        await client.until(functools.partial(dispatched, shared, client, turn + 2))
        begun = time.monotonic()
        client.cancel(session)
        assert (await client.answer(pending))["stopReason"] == "cancelled"
        assert time.monotonic() - begun < SOON
    await client.prompt(session, text("It goes on."))
    assert client.text(session).endswith("It goes on.")


async def test_a_waiting_prompt_alone(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    first = client.prompting(session, ENDLESS)
    await client.until(lambda: "word3" in client.text(session))
    message, second = client.request(
        "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "waits"}]
    )
    client.send(message)
    await client.until(lambda: len(states(shared, session)) == 2)
    client.notify("$/cancel_request", requestId=message["id"])
    client.cancel(session)
    answers = [(await client.answer(one))["stopReason"] for one in (first, second)]
    assert answers == ["cancelled", "cancelled"]
    await goes_on(shared, client, session, ENDLESS)


@pytest.mark.long
async def test_cancel_waiting_prompt_while_previous_one_runs(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    slow = script("repeat 50x40ms word{n} ")
    first = client.prompting(session, slow)
    await client.until(lambda: "word3" in client.text(session))
    message, second = client.request(
        "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "waits"}]
    )
    client.send(
        message,
        {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": message["id"]}},
    )
    assert (await client.answer(second))["stopReason"] == "cancelled"
    assert (await client.answer(first))["stopReason"] == "end_turn"
    assert "word50" in client.text(session)
    await goes_on(shared, client, session, slow)


@pytest.mark.long
async def test_all_prompts_of_the_session(shared: Stack) -> None:
    client = await shared.start()
    session, other = await client.new(shared.work), await client.new(shared.work)
    untouched = client.prompting(other, script("repeat 60x40ms word{n} "))
    pending = [client.prompting(session, ENDLESS), client.prompting(session, text("waits"))]
    await client.until(lambda: "word3" in client.text(session))
    client.cancel(session)
    assert [(await client.answer(one))["stopReason"] for one in pending] == [
        "cancelled",
        "cancelled",
    ]
    assert (await client.answer(untouched))["stopReason"] == "end_turn"


@pytest.mark.long
async def test_by_cancel_request(shared: Stack) -> None:
    """`$/cancel_request` of a prompt: it is answered `cancelled`, not with an error."""
    client = await shared.start()
    session = await client.new(shared.work)
    message, pending = client.request(
        "session/prompt", sessionId=session, prompt=[{"type": "text", "text": ENDLESS}]
    )
    client.send(message)
    await client.until(lambda: "word3" in client.text(session))
    client.notify("$/cancel_request", requestId=message["id"])
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    await goes_on(shared, client, session, ENDLESS)


async def test_when_nothing_runs(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    client.cancel(session)
    client.cancel("no such session")
    client.notify("$/cancel_request", requestId=4711)
    await client.prompt(session, text("First."))
    client.cancel(session)
    await goes_on(shared, client, session, text("First."))


async def test_while_the_model_gives_no_answer(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    pending = client.prompting(session, script("hang"))
    await client.until(shared.asked)
    begun = time.monotonic()
    client.cancel(session)
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    assert time.monotonic() - begun < SOON
    await client.prompt(session, text("It goes on."))
    assert client.text(session).endswith("It goes on.")


@pytest.mark.long
@pytest.mark.parametrize("work", ["answer", "tool"])
async def test_close_in_the_middle_of_a_turn(shared: Stack, work: str) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    prompt = ENDLESS if work == "answer" else script("bash touch begun; sleep 312")
    pending = client.prompting(session, prompt)
    await client.until(lambda: "word3" in client.text(session) or shared.find("sleep 312"))
    closed = client.begin("session/close", sessionId=session)
    order: list[str] = []
    pending.add_done_callback(lambda _: order.append("prompt"))
    closed.add_done_callback(lambda _: order.append("close"))
    assert await client.answer(closed) == {}
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    await client.until(lambda: len(order) == 2)
    assert order == ["prompt", "close"]
    await client.until(lambda: not any(one.session for one in shared.processes()), SOON)

    live = client.of(session)
    await client.load(session, shared.work)
    assert told(
        one for one in client.of(session) if one["sessionUpdate"] != "user_message_chunk"
    ) == told(live)
    await goes_on(shared, client, session, prompt)


@pytest.mark.parametrize("end", ["input ends", "SIGTERM"])
@pytest.mark.parametrize("work", ["answer", "tool", "silence", "starting"])
@pytest.mark.long
async def test_server_ends_during_turn(stack: Stack, end: str, work: str) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    prompt = {
        "answer": ENDLESS,
        "tool": script("bash touch begun; sleep 313"),
        "silence": script("hang"),
    }.get(work, text("Never said."))
    pending = client.prompting(session, prompt)
    begun = {
        "answer": lambda: "word3" in client.text(session),
        "tool": lambda: stack.find("sleep 313"),
        "silence": stack.asked,
        "starting": lambda: states(stack, session),
    }[work]
    await client.until(begun)
    since = time.monotonic()
    status = await (client.close() if end == "input ends" else client.terminate())
    took = time.monotonic() - since
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    assert status == 0
    assert took < 3
    await stack.nothing_left(1)
    assert states(stack, session) == ["cancelled"]


@pytest.mark.parametrize("adopted", [pytest.param(True, marks=pytest.mark.long), False])
async def test_worker_and_daemon_die_before_claude_stops(stack: Stack, adopted: bool) -> None:
    client = await stack.spawn_front()
    await client.initialize()
    session = await client.new(stack.work)
    pending = client.prompting(session, ENDLESS)
    await client.until(lambda: "word3" in client.text(session))
    claude, daemon = stack.claude(session), stack.daemon_pid()
    assert claude is not None
    assert daemon is not None
    os.kill(claude.pid, signal.SIGSTOP)
    client.cancel(session)
    await client.until(lambda: stack.rows("SELECT 1 FROM acp_turns WHERE cancel_asked"))
    worker = stack.worker(session).pid
    if adopted:
        os.kill(daemon, signal.SIGKILL)
        await client.until(lambda: '"recovered"' in "".join(logs(stack)))
        os.kill(worker, signal.SIGKILL)
    else:
        for pid in (worker, daemon):
            os.kill(pid, signal.SIGKILL)
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    assert states(stack, session) == ["cancelled"]
    # The first daemon may have answered: the next one, which ends it, starts only for a client.
    await client.until(lambda: stack.claude(session) is None)


async def test_calls_of_a_subagent_end_with_it(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    prompt = "[[script bash touch begun; sleep 71 ;; text Never.]]"
    call = {"description": "look", "subagent_type": "claude", "prompt": prompt}
    agent = json.dumps({**call, "run_in_background": False})
    pending = client.prompting(session, script(f"tool Agent {agent}", "text Never."))
    await client.until(lambda: shared.find("sleep 71"))
    client.cancel(session)
    assert (await client.answer(pending))["stopReason"] == "cancelled"
    await client.until(
        lambda: [
            one["status"] for one in seen(client.of(session)) if "toolCallId" in one
        ] == ["failed", "failed"]
    )  # fmt: skip
    await client.load(session, shared.work)
    calls = [one for one in seen(client.of(session)) if "toolCallId" in one]
    assert {one["status"] for one in calls} == {"failed"}
