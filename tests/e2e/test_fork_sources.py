"""Forks of sessions that do not run, with the real CLI, and with the MCP servers of the client."""

from __future__ import annotations

import pytest

from tests.e2e.commands import done
from tests.e2e.forks import fork, remembered, word
from tests.e2e.given_servers import program
from tests.e2e.harness import Client, Stack
from tests.e2e.other_programs import in_terminal

SERVER = program("local", "secret")
WHISPER = "tool mcp__local__whisper {}"


async def forked(client: Client, stack: Stack, source: str) -> str:
    """A fork of this source, with a server, whose first prompt has called it."""
    made = (await fork(client, stack, source, mcpServers=[SERVER]))["sessionId"]
    assert made != source
    await client.prompt(made, word("fork", WHISPER, "text Noted fork."))
    called = client.of(made, "tool_call_update")[-1]
    assert called["content"][0]["content"]["text"] == "backwards: terces"
    return str(made)


@pytest.mark.long
async def test_forks_of_evicted_or_closed_sessions_remember_them(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_MAX_WORKERS="1")
    evicted, closed = await client.new(stack.work), await client.new(stack.work)
    await client.prompt(evicted, word("one"))
    await client.prompt(closed, word("two"))
    assert stack.claude(evicted) is None
    await forked(client, stack, evicted)
    assert remembered(stack) == ["Word: one", "Word: fork"]
    await client.call("session/close", sessionId=closed)
    await forked(client, stack, closed)
    assert remembered(stack) == ["Word: two", "Word: fork"]
    for source, said in ((evicted, "Noted one."), (closed, "Noted two.")):
        await client.load(source, stack.work)
        assert client.text(source) == said, "the source is as it was"


@pytest.mark.long
async def test_forks_of_imports_and_transcripts_remember_them(stack: Stack) -> None:
    """A session of a terminal, never opened, and one that was imported, never prompted."""
    terminal = await in_terminal(stack, word("terminal"))
    client = await stack.front()

    async def listed() -> bool:
        sessions = (await client.call("session/list"))["sessions"]
        return [one["sessionId"] for one in sessions] == [terminal]

    found: bool = await client.until(listed)
    assert found
    made = await forked(client, stack, terminal)
    assert remembered(stack) == ["Word: terminal", "Word: fork"]

    file = stack.root / "export.json"
    file.write_text((await done(stack, "sessions", "export", terminal, "--format", "json")).out)
    out = (await done(stack, "import", str(file), "--directory", str(stack.work))).out
    imported = out.partition(" as session ")[2].partition(":")[0]
    again = await forked(client, stack, imported)
    reached = str(stack.asked()[-1]["messages"])
    assert "You have no record of it yourself" in reached
    assert "Word: terminal" in reached
    for one in (made, again):
        await client.load(one, stack.work)
        assert client.text(one).startswith("Noted terminal.")
        assert client.text(one).endswith("Noted fork.")
    for one in (terminal, imported):
        await client.load(one, stack.work)
        assert "Word: fork" not in client.text(one, "user_message_chunk")
