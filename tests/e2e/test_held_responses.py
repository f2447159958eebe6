"""Responses that wait, with the real CLI, until all that their turn has led to has ended."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script
from tests.waiting import not_within

WAITS = "touch begun; until [ -e over ]; do sleep 0.1; done"
SAID = "It looks.It found 42."


def looking(*steps: str) -> str:
    """A prompt whose turn ends while a subagent takes these steps, of which Claude tells later."""
    agent = {"description": "look", "subagent_type": "claude", "prompt": script(*steps)}
    return script(
        f"tool Agent {json.dumps(agent)}", "text It looks.", "stop end_turn", "text It found 42."
    )


def whole(client: Client, session: str, words: str, **meta: Any) -> asyncio.Future[dict[str, Any]]:
    block = {"type": "text", "text": words}
    meta = {"pykoclaw.dev/whole": True, **meta}
    return client.begin("session/prompt", sessionId=session, prompt=[block], _meta=meta)


def words(client: Client, session: str) -> str:
    """What Claude has said, without notes and the lines between turns."""
    chunks = client.of(session, "agent_message_chunk")
    said = [one["content"]["text"] for one in chunks if "pykoclaw.dev/note" not in one["_meta"]]
    return "".join(said).replace("\n", "")


async def held(stack: Stack, client: Client) -> tuple[str, asyncio.Future[dict[str, Any]]]:
    """A session whose prompt is answered when its subagent, which works, has ended."""
    session = await client.new(stack.work)
    response = whole(client, session, looking(f"bash {WAITS}", "text Looked."))
    await client.until((stack.work / "begun").exists)
    ended = f"SELECT 1 FROM acp_turns WHERE acp_session_id = '{session}' AND state = 'done'"
    await client.until(lambda: stack.rows(ended))
    return session, response


async def test_response_comes_after_subagents_report(shared: Stack) -> None:
    """What the subagent asks reaches the client, whose later prompt runs meanwhile."""
    client = await shared.start()
    session, response = await held(shared, client)
    assert [one["params"]["toolCall"]["kind"] for one in client.questions] == ["execute"]
    meanwhile = await client.prompt(
        session, script("text Meanwhile.", "stop end_turn", "text It found 42.")
    )
    await not_within(response.done)
    (shared.work / "over").touch()
    answer = await client.answer(response)
    assert words(client, session) == "It looks.Meanwhile.It found 42."
    used: dict[str, list[int]] = {"client": [], "background": []}
    mine = (
        f"SELECT origin, usage FROM acp_turns WHERE acp_session_id = '{session}' ORDER BY position"
    )
    for row in shared.rows(mine):
        used[row["origin"]].append(json.loads(row["usage"] or "{}").get("totalTokens", 0))
    first, second = used["client"]
    assert meanwhile["usage"]["totalTokens"] == second
    assert answer["stopReason"] == "end_turn"
    own = used["background"]  # the first may be of the subagent's question alone
    assert answer["usage"]["totalTokens"] in (first + sum(own), first + own[-1])
    command = await client.answer(whole(client, session, script("background true", "text Begun.")))
    assert command["stopReason"] == "end_turn"
    assert client.of(session, "tool_call_update")[-1]["status"] == "completed"


@pytest.mark.parametrize("by", ["session/cancel", "$/cancel_request"])
async def test_cancel_ends_held_response(shared: Stack, by: str) -> None:
    client = await shared.start()
    session, response = await held(shared, client)
    if by == "session/cancel":
        client.cancel(session)
    else:
        (asked,) = (one["id"] for one in client.sent if one.get("method") == "session/prompt")
        client.notify(by, requestId=asked)
    assert (await client.answer(response))["stopReason"] == "cancelled"
    assert {one["status"] for one in client.of(session, "tool_call_update")[-2:]} == {"failed"}
    assert (await client.prompt(session, script("text Go on.")))["stopReason"] == "end_turn"
    assert words(client, session) == "It looks.Go on."


@pytest.mark.long
@pytest.mark.parametrize("end", ["input ends", "SIGTERM"])
async def test_server_ends_while_response_is_held(stack: Stack, end: str) -> None:
    client = await stack.start()
    _, response = await held(stack, client)
    status = await (client.close() if end == "input ends" else client.terminate())
    assert (await client.answer(response))["stopReason"] == "cancelled"
    assert status == 0
    await stack.nothing_left(1)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)]
)
async def test_response_is_held_by_next_daemon(stack: Stack, number: signal.Signals) -> None:
    client = await stack.front()
    session, response = await held(stack, client)
    await stack.end_daemon(number)
    await client.until(lambda: stack.daemon_pid() is not None)
    await not_within(response.done)
    (stack.work / "over").touch()
    assert (await client.answer(response))["stopReason"] == "end_turn"
    assert words(client, session) == SAID
    live = [one["_meta"]["pykoclaw.dev/seq"] for one in client.of(session)]
    assert len(stack.rows("SELECT 1 FROM acp_turns WHERE origin = 'client'")) == 1
    await client.load(session, stack.work)
    assert words(client, session) == SAID
    assert client.of(session)[-1]["_meta"]["pykoclaw.dev/seq"] == live[-1]


@pytest.mark.long
async def test_client_leaves_held_response(stack: Stack) -> None:
    """Its subagent goes on."""
    client = await stack.front()
    session, _ = await held(stack, client)
    assert await client.close() == 0
    (stack.work / "over").touch()
    again = await stack.front()
    await again.load(session, stack.work)
    await again.until(lambda: words(again, session) == SAID)


async def test_steered_prompt_waits_for_its_turns_subagent(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    agent = {"description": "look", "prompt": script(f"bash {WAITS}", "text Looked.")}
    running = client.prompting(
        session,
        script(
            f"tool Agent {json.dumps(agent)}", "bash sleep 2", "text It looks.", "stop end_turn",
            "text It found 42.",
        ),
    )  # fmt: skip
    await client.until((shared.work / "begun").exists)
    meta = {"pykoclaw.dev/steering": "steer"}
    steered = whole(client, session, "Look out.", **meta)
    assert (await client.answer(running))["stopReason"] == "end_turn"
    await not_within(steered.done)
    (shared.work / "over").touch()
    answer = await client.answer(steered)
    assert (answer["stopReason"], answer["_meta"]["pykoclaw.dev/steering"]) == (
        "end_turn",
        "injected",
    )
    assert words(client, session) == SAID
