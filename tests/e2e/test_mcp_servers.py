# ruff: noqa: ASYNC240 - a test may look at a file while it does nothing else
"""MCP servers that clients give, with the real CLI: on stdio, over http and over sse."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from tests.e2e.harness import Client, Stack, script
from tests.e2e.mcp_web import serving
from tests.waiting import eventually

SECRET = "s3cret-of-a-server"
LITERAL = "Bearer ${HOME} " + SECRET


def program(name: str, secret: str) -> dict[str, Any]:
    """A server on stdio that whispers what its secret is made of."""
    path = str(Path(__file__).with_name("mcp_server.py"))
    environment = [{"name": "SECRET", "value": secret}]
    return {"name": name, "command": sys.executable, "args": [path], "env": environment}


def results(client: Client, session: str) -> list[str]:
    """What the tools have answered, in order."""
    ended = client.of(session, "tool_call_update")
    return [one["content"][0]["content"]["text"] for one in ended if one["status"] == "completed"]


def found_in_files(stack: Stack, word: str) -> list[Path]:
    """Files of this home, and logs, that hold the word."""
    files = [path for path in stack.root.rglob("*") if path.is_file()]
    return [path for path in files if word.encode() in path.read_bytes()]


async def test_servers_of_every_kind_reach_claude_and_their_secrets_nothing_else(
    stack: Stack,
) -> None:
    """Also a worker that a new daemon has launched: the front gives it the servers again."""
    async with serving() as web, serving("sse") as events:
        headers = [{"name": "Authorization", "value": LITERAL}]
        given = [
            program("local", SECRET),
            web.given(headers=headers, url=f"{web.url}/mcp?key={SECRET}"),
            events.given(type="sse", name="events", url=f"{events.url}/sse", headers=headers),
        ]
        client = await stack.front()
        session = await client.new(stack.work, mcpServers=given)
        calls = (
            "tool mcp__local__whisper {}",
            'tool mcp__web__greet {"name": "Ada"}',
            'tool mcp__events__greet {"name": "Bob"}',
        )
        for round_ in (1, 2):
            await client.prompt(session, script(*calls, "text Done."))
            said = results(client, session)[-3:]
            assert said[0] == f"backwards: {SECRET[::-1]}"
            assert ["Ada" in said[1], "Bob" in said[2]] == [True, True]
            for server in (web, events):
                assert {one.get("authorization") for _, one in server.requests} == {LITERAL}
            if round_ == 1:
                await no_secret_seen(stack)
                await stack.end_daemon(signal.SIGKILL)
                for one in stack.processes():
                    if one.is_worker:
                        one.kill()
                web.requests.clear()
                events.requests.clear()
        await client.load(session, stack.work, mcpServers=[])
        await client.prompt(session, script("tool mcp__local__whisper {}", "text Gone."))
        last = client.of(session, "tool_call_update")[-1]
        assert last["status"] == "failed", "the client has taken its servers back"
        await no_secret_seen(stack)


async def no_secret_seen(stack: Stack) -> None:
    """Neither on a command line, nor in a file: transcripts, logs, spools, and the database."""
    own = {process.pid for process in stack.processes() if "mcp_server.py" in process.command}
    assert all(SECRET not in process.command for process in stack.processes())
    environments = {
        process.pid: Path(f"/proc/{process.pid}/environ").read_bytes()
        for process in stack.processes()
    }
    assert {pid for pid, one in environments.items() if SECRET.encode() in one} <= own
    await eventually(lambda: found_in_files(stack, SECRET) == [])
    assert SECRET not in json.dumps([dict(row) for row in stack.rows("SELECT * FROM acp_sessions")])
