"""The scripted model seen by the real Claude CLI, through the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    Message,
    PermissionResultAllow,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
)

from pykoclaw_acp.scripted_model.environment import offline_environment
from pykoclaw_acp.scripted_model.process import ScriptedModel
from tests.waiting import eventually

DEADLINE_SECONDS = 60


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as started:
        yield started


async def allow(
    _tool: str, _input: dict[str, Any], _context: ToolPermissionContext
) -> PermissionResultAllow:
    return PermissionResultAllow()


@contextlib.asynccontextmanager
async def claude(url: str, home: Path, **environment: str) -> AsyncIterator[ClaudeSDKClient]:
    options = ClaudeAgentOptions(
        env=offline_environment(url, home) | environment,
        cwd=home,
        can_use_tool=allow,
        include_partial_messages=True,
        setting_sources=[],
        system_prompt={"type": "preset", "preset": "claude_code"},
        thinking={"type": "adaptive", "display": "summarized"},
    )
    async with ClaudeSDKClient(options) as client:
        yield client


async def turn(client: ClaudeSDKClient, prompt: str) -> list[Message]:
    """Everything up to the turn's result."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        await client.query(prompt)
        return [message async for message in client.receive_response()]


def result(messages: list[Message]) -> ResultMessage:
    assert isinstance(messages[-1], ResultMessage)
    return messages[-1]


def deltas(messages: list[Message], kind: str) -> list[str]:
    found = [
        message.event.get("delta", {}) for message in messages if isinstance(message, StreamEvent)
    ]
    return [delta[kind.removesuffix("_delta")] for delta in found if delta.get("type") == kind]


@pytest.mark.long
async def test_text_and_thinking_are_streamed_and_complete(
    model: ScriptedModel, tmp_path: Path
) -> None:
    async with claude(model.url, tmp_path) as client:
        messages = await turn(
            client, "[[script thinking Let me see. ;; repeat 30x5ms w{n} ;; text End.]]"
        )
    expected = " ".join(f"w{n}" for n in range(1, 31)) + "\nEnd."
    assert deltas(messages, "thinking_delta") == ["Let me see."]
    assert "".join(deltas(messages, "text_delta")) == expected
    assert len(deltas(messages, "text_delta")) == 31
    blocks = [
        block
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
    ]
    assert [type(block) for block in blocks] == [ThinkingBlock, TextBlock]
    final = result(messages)
    assert (final.is_error, final.result, final.stop_reason) == (False, expected, "end_turn")
    assert final.usage is not None
    assert final.usage["input_tokens"] > 1000
    (request,) = model.requests(None)
    assert (request["kind"], request["outcome"], request["deltas"]) == ("main", "served", 32)
    assert request["session"] == final.session_id


@pytest.mark.long
async def test_tools_are_run_and_their_results_come_back(
    model: ScriptedModel, tmp_path: Path
) -> None:
    script = r"""[[script
write sub/a.txt <<< one\ntwo
edit sub/a.txt <<< two => three
read sub/a.txt
bash cat sub/a.txt | tr '\n' '+'
& bash echo parallel
text done
]]"""
    async with claude(model.url, tmp_path) as client:
        final = result(await turn(client, script))
    assert (final.is_error, final.result) == (False, "done")
    assert (tmp_path / "sub" / "a.txt").read_text() == "one\nthree"
    requests = model.requests()
    assert len(requests) == 5
    last = requests[-1]["messages"]
    uses = [use for message in last for use in message["tool_uses"]]
    results = {found["id"]: found["text"] for message in last for found in message["tool_results"]}
    assert [use["name"] for use in uses] == ["Write", "Edit", "Read", "Bash", "Bash"]
    assert "three" in results[uses[2]["id"]]
    assert (results[uses[3]["id"]], results[uses[4]["id"]]) == ("one+three", "parallel")


@pytest.mark.long
async def test_faults_are_what_the_cli_takes_for_them(model: ScriptedModel, tmp_path: Path) -> None:
    async with claude(model.url, tmp_path) as client:
        overloaded = await turn(client, "[[script error 529 times=1 retry-after=1 ;; text fine]]")
        assert result(overloaded).result == "fine"
        retries = [message for message in overloaded if isinstance(message, SystemMessage)]
        assert 529 in [
            message.data.get("error_status")
            for message in retries
            if message.subtype == "api_retry"
        ]

        failed = await turn(
            client, "[[script text before ;; stream-error overloaded_error times=1 ;; text after]]"
        )
        assert deltas(failed, "text_delta")[:1] == ["before"]
        assert result(failed).result == "before\nafter"

        broken = await turn(client, "[[script text before ;; cut times=1 ;; text after]]")
        assert result(broken).result == "before\nafter"

        refused = result(await turn(client, "[[script error 401]]"))
        assert (refused.is_error, refused.api_error_status) == (True, 401)

        # The failed prompt and this one reach the model in one message.
        assert "“Are you there?”. That is message 5" in str(
            result(await turn(client, "Are you there?")).result
        )
    seen = [(request["status"], request["outcome"]) for request in model.requests()]
    assert seen[:6] == [
        (529, "error"),
        (200, "served"),
        (200, "error"),
        (200, "served"),
        (200, "cut"),
        (200, "served"),
    ]
    assert set(seen[6:-1]) == {(401, "error")}
    assert seen[-1] == (200, "served")


async def test_interrupted_hang_appears_as_client_disconnect(
    model: ScriptedModel, tmp_path: Path
) -> None:
    async with claude(model.url, tmp_path) as client, asyncio.timeout(DEADLINE_SECONDS):
        await client.query("[[script text some ;; hang ;; text never]]")
        messages = client.receive_response()
        async for message in messages:
            if deltas([message], "text_delta"):
                break
        await client.interrupt()
        assert (
            result([message async for message in messages]).terminal_reason == "aborted_streaming"
        )
        await eventually(lambda: model.requests()[-1]["outcome"] == "client_gone")
        assert "“And now?”. That is message 2" in str(result(await turn(client, "And now?")).result)


@pytest.mark.long
async def test_next_request_holds_history_after_server_restart(tmp_path: Path) -> None:
    with ScriptedModel() as first:
        port = urlsplit(first.url).port or 0
        async with claude(first.url, tmp_path) as client:
            await turn(client, "The word is pelican.")
            first.close()
            with ScriptedModel(port=port) as second:
                final = result(await turn(client, "[[script report]]"))
                (request,) = second.requests()
    assert request["user_texts"] == ["The word is pelican.", "[[script report]]"]
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
    assert "1. user: The word is pelican." in str(final.result)


@pytest.mark.long
async def test_turns_started_by_cli_continue_the_script(
    model: ScriptedModel, tmp_path: Path
) -> None:
    prompt = "[[script bash echo sub ;; text I looked.]]"
    agent = "tool Agent " + json.dumps(
        {"description": "d", "subagent_type": "claude", "prompt": prompt}
    )
    async with claude(model.url, tmp_path) as client:
        assert (
            result(await turn(client, "[[script text a ;; stop max_tokens ;; text b]]")).result
            == "b"
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            await client.query(f"[[script\n{agent}\ntext started\nstop end_turn\ntext ended\n]]")
            results = []
            async for message in client.receive_messages():
                if isinstance(message, ResultMessage):
                    results.append(message.result)
                    if message.result == "ended":
                        break
    assert results == ["started", "ended"]
    subagent = [request for request in model.requests() if request["agent"]]
    assert [request["user_texts"] for request in subagent] == [[prompt]] * 2


@pytest.mark.long
async def test_titles_and_summaries_are_side_requests(model: ScriptedModel, tmp_path: Path) -> None:
    async with claude(model.url, tmp_path, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="") as client:
        assert result(await turn(client, "Buy milk. [[script text bought]]")).result == "bought"
        await eventually(lambda: bool(model.requests("side")))
        title = model.requests("side")[0]
        assert "Buy milk" in title["user_texts"][0]
        assert title["script"] is None
        assert len(model.requests()) == 1

        await turn(client, "/compact")
        assert len(model.requests()) == 1
        final = result(await turn(client, "What did I ask for?"))
        assert "That is the first message" in str(final.result)
        assert "Buy milk. [script]" in model.requests()[-1]["messages"][0]["text"]
