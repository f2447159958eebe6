"""The official TypeScript SDK's client, over everything that it can call, without a warning on
either side.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.given_servers import program
from tests.e2e.harness import Stack
from tests.e2e.harness.logs import logs, warnings
from tests.e2e.harness.stack import PROGRAM

HERE = Path(__file__).parent / "typescript"
WAIT = 180  # seconds


def missing() -> str | None:
    """Why the client cannot run here."""
    if shutil.which("node") is None:
        return "there is no node"
    if not (HERE / "node_modules/.package-lock.json").exists():
        return "the SDK is not installed: make node"
    return None


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="front"),
        pytest.param(("serve", "--stdio"), id="stdio", marks=pytest.mark.long),
    ],
)
async def test_whole_surface(stack: Stack, arguments: tuple[str, ...]) -> None:
    reason = missing()
    if reason is not None and os.environ.get("PYKOCLAW_TEST_NODE") != "1":
        pytest.skip(reason)
    assert reason is None, reason
    node = await asyncio.create_subprocess_exec(
        "node", HERE / "client.mjs", stack.work, json.dumps(program("local", "s3cret")), *PROGRAM, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env=stack.environment, cwd=stack.root,
    )  # fmt: skip
    said, complaints = await asyncio.wait_for(node.communicate(), WAIT)
    assert node.returncode == 0, complaints.decode()
    assert said == b"ok\n"
    agent = complaints.decode()
    if not arguments:  # a front says which daemon it starts; that one has a log
        assert re.fullmatch(r"pykoclaw-acp \S+: starting the daemon at \S+\n", agent)
        agent = ""
        assert logs(stack)
    assert warnings(agent, *logs(stack)) == []
