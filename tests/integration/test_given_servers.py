"""MCP servers that clients give their sessions: what is taken, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.sessions.new_session import Beginnings
from tests.integration.callers import caller
from tests.integration.rig import rig
from tests.integration.wires import client, prompt
from tests.workers import OPTIONS

SECRET = "s3cret-value"
WEB: dict[str, Any] = {
    "type": "http",
    "name": "web",
    "url": f"https://example.org/mcp?key={SECRET}",
    "headers": [{"name": "Authorization", "value": f"Bearer {SECRET}"}],
}


async def test_each_transport_reaches_the_worker(tmp_path: Path) -> None:
    program = {"name": "tool", "command": "/bin/true", "args": ["-x"], "env": []}
    typed = {**program, "name": "typed", "type": "stdio"}
    given = [WEB, {**WEB, "type": "sse", "name": "events"}, program, typed]
    async with rig(tmp_path) as r, client(r) as wire:
        made = await wire.call("session/new", cwd="/", mcpServers=given)
        session = made["result"]["sessionId"]
        await wire.call("session/prompt", **prompt(session, "say 1"))
        options = r.launcher.launched[-1].spec.options
        assert [one.config for one in options.mcp_servers] == [
            {"type": "http", "url": WEB["url"], "headers": {"Authorization": f"Bearer {SECRET}"}},
            {"type": "sse", "url": WEB["url"], "headers": {"Authorization": f"Bearer {SECRET}"}},
            {"command": "/bin/true", "args": ["-x"], "env": {}},
            {"command": "/bin/true", "args": ["-x"], "env": {}},
        ]
        assert SECRET not in repr(options)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"type": "acp"}, ".type`: this agent connects to servers on stdio, http and sse only"),
        ({"type": 7}, ".type`"),
        ({"url": None}, ".url`"),
        ({"url": "ftp://example.org/" + SECRET}, ".url`: must be an address"),
        ({"url": "https:///" + SECRET}, ".url`: must be an address"),
        ({"url": "https://example.org:x/" + SECRET}, ".url`: must be an address"),
        ({"url": f"https://example.org/ {SECRET}"}, ".url`: must be an address"),
        ({"headers": None}, ".headers`"),
        (
            {"headers": [{"name": "X Y", "value": SECRET}]},
            ".headers[0].name`: is not a valid HTTP header name",
        ),
        (
            {"headers": [{"name": "X", "value": f"{SECRET}\r\nY: z"}]},
            ".headers[0].value`: must be one line",
        ),
        ({"name": ""}, ".name`: must not be empty"),
        ({"name": "__proto__"}, ".name`: Claude cannot have a server named __proto__"),
    ],
)
async def test_bad_server_is_refused_in_words(
    tmp_path: Path, change: dict[str, Any], names: str
) -> None:
    """The words name the field, and hold nothing that may be secret."""
    async with rig(tmp_path) as r, client(r) as wire:
        bad = {**WEB, **change}
        refused = (await wire.call("session/new", cwd="/", mcpServers=[bad]))["error"]
        assert refused["code"] == -32602
        assert f"mcpServers[0]{names}" in refused["message"]
        assert SECRET not in str(refused)


async def test_two_servers_of_one_name_are_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        refused = await wire.call("session/new", cwd="/", mcpServers=[WEB, {**WEB, "type": "sse"}])
        assert refused["error"]["code"] == -32602
        assert "two servers have the same name" in refused["error"]["message"]


def test_claude_expands_no_variable_in_clients_servers() -> None:
    given = McpServer(name="a", command="${A}", args=("$B", "${C:-d}"), env={"E": "x${F}y"})
    assert given.config == {
        "command": "${PYKOCLAW_UNSET:-$}{A}",
        "args": ["$B", "${PYKOCLAW_UNSET:-$}{C:-d}"],
        "env": {"E": "x${PYKOCLAW_UNSET:-$}{F}y"},
    }


async def test_operator_lists_servers_without_secrets_but_finds_whole(tmp_path: Path) -> None:
    """Both from memory: they are in no table."""
    user = {**WEB, "name": "b", "url": f"https://me:{SECRET}@example.org/b?{SECRET}"}
    program = {"name": "a", "command": "/bin/true", "args": [SECRET], "env": []}
    async with rig(tmp_path) as r, client(r) as wire, caller(r, tmp_path) as cli:
        for _ in range(2):
            await wire.call("session/new", cwd="/", mcpServers=[user, program])
        listed = await cli.call("mcp/list")
        assert [(one["name"], one["address"], one["sessions"]) for one in listed] == [
            ("a", "/bin/true", 2),
            ("b", "https://example.org/b", 2),
        ]
        assert SECRET not in str(listed)
        for word in ("b", "https://example.org/b"):
            (found,) = (await cli.call("mcp/find", server=word))["servers"]
            assert found["config"]["headers"] == {"Authorization": f"Bearer {SECRET}"}
        assert (await cli.call("mcp/find", server="a"))["servers"] == []
        assert holding_secret(tmp_path) == []


async def test_server_is_found_with_accounts_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude keeps a sign-in there; another place would help no session."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/own")
    async with rig(tmp_path) as r, client(r) as wire, caller(r, tmp_path) as cli:
        (tmp_path / "accounts/work").mkdir(parents=True)
        r.sessions.daemon_environment = replace(
            r.sessions.daemon_environment, accounts=str(tmp_path / "accounts")
        )
        r.sessions.beginnings = Beginnings(r.sessions.daemon_environment, OPTIONS)
        await wire.call("session/new", cwd="/", mcpServers=[WEB])
        await wire.call(
            "session/new", cwd="/", mcpServers=[WEB], _meta={"pykoclaw.dev/account": "work"}
        )
        found = (await cli.call("mcp/find", server=WEB["name"]))["servers"]
        assert {one["claudeConfigDir"] for one in found} == {
            "/own",
            str(tmp_path / "accounts/work"),
        }


def holding_secret(root: Path) -> list[Path]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return [path for path in files if SECRET.encode() in path.read_bytes()]
