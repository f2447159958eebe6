"""What README and docs/commands.md promise, tried on the real program."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import done, run
from tests.e2e.harness import Stack, script, text
from tests.unit.documents import ROOT, blocks, codes, table
from tests.unit.documents import text as document


def documented(command: str) -> set[str]:
    return {
        key for row in table("docs/commands.md", f"keys of `{command}`") for key in codes(row[0])
    }


def keys(value: Any, known: set[str], prefix: str = "") -> Iterator[str]:
    """Paths of a JSON value, down to those that are documented; null and an empty list may hold all."""
    for one in value if isinstance(value, list) else [value]:
        for name, inner in one.items():
            path = prefix + name
            below = {key for key in known if key.startswith(f"{path}.")}
            if path not in known and below:
                yield from keys(inner, known, f"{path}.") if inner else below
            else:
                yield path


@pytest.mark.long
async def test_json_output_has_the_documented_keys(stack: Stack) -> None:
    client = await stack.front()
    client.permit = lambda _: None
    session = await client.new(stack.work)
    await client.prompt(session, text("Yes."))
    client.prompting(session, script("bash mkdir made"))
    await client.until(lambda: client.questions)
    (stack.work / ".mcp.json").write_text('{"mcpServers": {"one": {"command": "true"}}}')
    await done(stack, "trust", "add", str(stack.work))
    for command, arguments in (
        ("status", ()),
        ("sessions list", ()),
        ("sessions show", (session,)),
        ("approve", ()),
        ("trust list", ()),
        ("trust show", (str(stack.work),)),
        ("workers list", ()),
        ("doctor", ()),
        ("config", ()),
    ):
        shown = (await run(stack, *command.split(), *arguments, "--json")).json
        known = documented(command)
        assert set(keys(shown, known)) == known, command
    exported = (await done(stack, "sessions", "export", session, "--format", "json")).json
    known = documented("sessions export")
    assert set(keys(exported, known)) == known


async def test_the_readme_leads_to_an_answer(tmp_path: Path) -> None:
    (block,) = (one for one in blocks(document("README.md"), "sh") if "docs/client.py" in one)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", block.replace("8089", str(port)),
        cwd=ROOT, env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await asyncio.wait_for(shell.communicate(), 240)
    assert shell.returncode == 0, error.decode()
    model, *conversation = out.decode().splitlines()
    assert json.loads(model) == {"url": f"http://127.0.0.1:{port}"}
    assert conversation[:3] == ["Let me look.", "[Run a scripted command: ls]", "That is all."]
    assert "(end_turn)" in conversation
    assert any(line.startswith("The daemon (pid ") for line in conversation), (
        "and what was started ends"
    )
