# ruff: noqa: ASYNC240 - a test may look at a file while it does nothing else
"""Keys reach Claude, and nothing else: neither what it starts, nor an error, nor a core dump."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import RpcError, Stack, files, script

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-of-nobody-else",
    "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-of-nobody-else",
}


@pytest.mark.parametrize(
    "name",
    ["ANTHROPIC_API_KEY", pytest.param("CLAUDE_CODE_OAUTH_TOKEN", marks=pytest.mark.long)],
)
async def test_key_reaches_claude_but_not_its_children(stack: Stack, name: str) -> None:
    """Claude refuses to ask the model without a key: that it answers shows that it was
    given one.
    """
    settings = stack.home / ".claude/settings.json"
    settings.parent.mkdir()
    hook = {"type": "command", "command": f"env > {stack.root}/hook"}
    settings.write_text(json.dumps({"hooks": {"SessionStart": [{"hooks": [hook]}]}}))
    server = stack.root / "server.py"
    server.write_text(
        f"import os\nopen({str(stack.root / 'mcp')!r}, 'w').write(str(dict(os.environ)))\n"
    )
    offered = [{"name": "nosy", "command": sys.executable, "args": [str(server)], "env": []}]
    client = await stack.start(**(dict.fromkeys(SECRETS, "") | {name: SECRETS[name]}))
    client.permit = lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
    session = await client.new(stack.work, mcpServers=offered)
    looking = (
        f"env > {stack.root}/tool; tr '\\\\0' '\\\\n' < /proc/$PPID/environ > {stack.root}/claude"
    )
    await client.prompt(session, script(f"bash {looking}", "text Seen."))
    assert client.text(session).endswith("Seen.")  # after a note: the program is no MCP server
    for place in ("hook", "mcp", "tool", "claude"):
        seen = (stack.root / place).read_text()
        assert "CLAUDE_CONFIG_DIR" in seen, place
        assert SECRETS[name] not in seen, place
    with pytest.raises(RpcError) as error:
        await client.prompt(session, script("error 401 invalid x-api-key"))
    told = str(client.received) + client.log.read_text() + error.value.message
    assert "of-nobody-else" not in told
    assert files.holding(stack.home, SECRETS[name]) == []


@pytest.mark.long
async def test_no_core_dump_holds_memory(stack: Stack) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        client = await stack.front()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    session = await client.new(stack.work)
    await client.prompt(session, script("text Here."))
    for process in stack.processes():
        filtered = int(Path(f"/proc/{process.pid}/coredump_filter").read_text(), 16)
        limits = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
        (core,) = [line.split()[4] for line in limits if line.startswith("Max core file size")]
        assert filtered == 0, process
        assert core == "0" or process.pid == client.process.pid, process
    assert len(stack.processes()) >= 5, "front, daemon, fork server, worker, Claude"
