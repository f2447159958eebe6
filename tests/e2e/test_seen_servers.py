"""What a user sees of MCP servers that do not work, and of `/mcp`, live and again."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.given_servers import program
from tests.e2e.harness import Stack, text
from tests.e2e.harness.seen import seen_again


@pytest.mark.long
async def test_servers_are_announced_reconnected_and_switched_off(stack: Stack) -> None:
    client = await stack.start()
    broken = {"name": "broken", "command": sys.executable, "args": ["-c", "exit(1)"], "env": []}
    given = [program("sec", "hush"), broken]
    session = await client.new(stack.work, mcpServers=given)
    await client.prompt(session, text("Hi."))
    assert client.text(session).count("**MCP server `broken` does not work") == 1
    said = {}
    for command in ("/mcp", "/mcp reconnect broken", "/mcp disable sec", "/mcp enable sec"):
        before = len(client.text(session))
        await client.prompt(session, command)
        said[command] = client.text(session)[before:]
    assert "| broken | does not work |" in said["/mcp"]
    assert said["/mcp reconnect broken"].startswith("MCP server broken could not be connected anew")
    assert said["/mcp disable sec"].startswith("MCP server sec was disabled.")
    assert "| sec | disabled |" in said["/mcp disable sec"]
    assert said["/mcp enable sec"].startswith("MCP server sec was enabled.")
    assert "| sec | connected | 2 |" in said["/mcp enable sec"]
    await seen_again(stack, client, session)
